// SPDX-License-Identifier: Apache-2.0
// What a family is: lists and a few functions, in ops/<family>.c (a large one's plans stand beside it). Everything else in
// Quern works from this description and knows no family by name.
//
//   fields    →  text ⇄ structure, checks, messages, the memory table's descriptor, `quern ops`
//   tensors   →  arguments by name, .npy files of `quern run`, null and stride checks, `quern ops`
//   knobs     →  the configuration space of tuner and heuristics
//   buckets   →  fixed ranges of the run-time sizes; each is served by one configuration
//   plan      →  configuration to kernels (constants, threads, shared memory), or a refusal with the numbers
//   launch    →  arguments to grid and parameter structure of each stage
#ifndef QN_OPS_FAMILY_H
#define QN_OPS_FAMILY_H

#include "base/text.h"
#include "codegen/source.h"
#include "cuda/arch.h"

typedef enum qn_type {
    QN_INT,  // int64_t
    QN_FLAG, // int, 0 or 1
    QN_ENUM, // an enum type (int), by the table of names
    QN_REAL  // double
} qn_type;

typedef struct qn_name {
    const char *name;
    int value;
} qn_name;

// A number of the spec, of the sizes structure, or a knob.
typedef struct qn_field {
    const char *name;
    qn_type type;
    size_t offset; // in its structure
    bool required;
    int64_t min, max;     // QN_INT
    int64_t initial;      // default, integer types
    double real_initial;  // default, QN_REAL
    const char *allowed;  // QN_REAL: its range in words, which the family's check keeps; NULL: any finite number
    const qn_name *names; // QN_ENUM: what is allowed, ends with name NULL
    const char *doc;      // one line
} qn_field;

enum { QN_MAX_RANK = 4 };
typedef enum qn_direction { QN_INPUT, QN_OUTPUT } qn_direction;

// A tensor argument. Its axes are named; an axis is a size ("rows"), a field of the spec ("V"), or one more than either
// ("B+1"). A tensor whose shape depends on an enum of the spec stands in the list once a shape, under one name.
typedef struct qn_tensor {
    const char *name;
    qn_direction direction;
    const char *axes[QN_MAX_RANK + 1]; // outermost first, ends with NULL; the innermost is contiguous
    quern_dtype dtype;                 // QUERN_DTYPE_NONE: by dtype_field
    const char *dtype_field;           // a QN_ENUM field of the spec that holds a quern_dtype
    const char *flag;                  // the field that says the tensor is given; NULL = always
    const char *unless;                // the field that says it is not; NULL = none
    const char *choice;                // an enum field of the spec, which must have one of `choices`; NULL = none
    uint32_t choices;                  // bit v: the value v
    bool any_order;                    // outer axes may lie in memory in any order, if no two elements share a place
    size_t pointer_offset;             // in the argument structure
    size_t stride_offset[QN_MAX_RANK]; // of <name>_stride_<axis>, for each outer axis
    const char
        *stride_axes[QN_MAX_RANK]; // what <axis> is there, where one stride is of axes with several names; NULL: axes
    const char *doc;
} qn_tensor;

// A choice of the configuration space. Values are small integers; names give some of them words (plan=cluster).
enum {
    QN_MAX_KNOBS = 12,
    QN_MAX_CHOICES = 16,
    QN_MAX_STAGES = 4,
    QN_MAX_BUCKETS = 32,
    QN_MAX_VARIANTS = QN_MAX_BUCKETS, // tuned, each bucket may have its own
    QN_MAX_PARAMS = 1024
};
typedef struct qn_knob {
    const char *name;
    int choices[QN_MAX_CHOICES];
    size_t choice_count;
    const qn_name *names; // NULL: numbers
    const char *doc;
} qn_knob;

typedef struct qn_config {
    int32_t value[QN_MAX_KNOBS]; // one a knob, in the family's order; unused ones are 0
} qn_config;

typedef struct qn_plan {
    qn_kernel_plan stage[QN_MAX_STAGES];
    size_t stage_count;
} qn_plan;

// The launch of one stage, filled on the launch path: no allocation, nothing slow.
typedef struct qn_launch {
    uint32_t grid[3];
    bool skip;                                        // this stage has nothing to do for these arguments
    _Alignas(64) unsigned char params[QN_MAX_PARAMS]; // params_bytes of the stage's plan
} qn_launch;

// Functions that every launch runs lie beside each other in the library: few pages, few cache lines.
#define QN_LAUNCH_PATH __attribute__((hot))

typedef struct qn_device_limits { // of the device in use, read once at prepare
    int sm_count;
    const struct qn_driver *driver; // for tensor maps; the model has one that knows nothing else
} qn_device_limits;

typedef struct qn_family {
    const char *name;
    const char *doc; // one line: the formula
    const qn_field *fields;
    size_t field_count;
    size_t spec_bytes;
    const qn_field *sizes;          // offsets in the sizes structure
    const size_t *size_args_offset; // of the same sizes in the argument structure
    size_t size_count;
    size_t sizes_bytes;
    const qn_tensor *tensors;
    size_t tensor_count;
    size_t args_bytes;
    size_t workspace_offset, workspace_bytes_offset; // in the argument structure
    const qn_knob *knobs;
    size_t knob_count;

    // May be NULL. How long an axis is that is neither size nor field, from fields of a valid spec ("C/2"); -1: unknown.
    int64_t (*axis_length)(const quern_spec *spec, const char *axis);

    // May be NULL. Sets fields whose default follows from other fields; before check.
    void (*derive)(quern_spec *spec);

    // Cross-field checks, after the generic ones: CONFLICT with both fields and values.
    quern_status (*check)(const quern_spec *spec);

    // Buckets of the sizes, the same for every spec of the family: how many, what each is called ("rows 5..14"),
    // the sizes that stand for it in tuning, and which one serves a launch. bucket_of is on the launch path.
    size_t bucket_count;
    void (*bucket_name)(size_t bucket, char *text, size_t bytes);
    void (*bucket_sizes)(size_t bucket, void *sizes);
    size_t (*bucket_of)(const void *sizes);
    // NULL where there is one size. The buckets that launches of a spec with sizes from … to may be in: bit b for bucket b.
    // What the spec's layout does not have, and what bucket_of does not ask for, may be anything.
    uint32_t (*buckets_between)(const quern_spec *spec, const void *from, const void *to);
    // May be NULL. BAD_SIZE, as of check_args, where no launch has sizes from … to; 0 may stand for one that is not given.
    quern_status (*check_sizes)(const void *from, const void *to);

    // The heuristic configuration of a bucket on an architecture. Depends on nothing else.
    void (*choose)(const quern_spec *spec, const qn_arch *arch, size_t bucket, qn_config *config);

    // May be NULL: nothing depends on how many SMs a device has. Changes a configuration with a plan into the one that a bucket
    // needs on a device with so few SMs that its launches would not go by it; true: it did. Leaves what choose chooses as it is
    // on the architecture's usual part, and makes of it only what choose chooses for other buckets: which a warm has made.
    bool (*fit)(const quern_spec *spec, size_t bucket, int sm_count, qn_config *config);

    // Configuration to kernels. NO_PLAN with the numbers (needs 300 KiB of shared memory, has 227) when it can't be.
    quern_status (*plan)(const quern_spec *spec, const qn_arch *arch, const qn_config *config, qn_plan *plan);

    // May be NULL. What a configuration takes of an SM, in words and numbers: `quern show plan` prints it.
    void (*budget)(const quern_spec *spec, const qn_arch *arch, const qn_config *config, qn_text *text);

    // Device memory that a configuration needs for sizes up to these, and the 32-bit word it is filled with at first.
    size_t (*workspace)(const quern_spec *spec, const qn_config *config, const void *sizes);
    uint32_t workspace_word;

    // Launch path: checks sizes, pointers and strides (qn_check_args does the generic part); nothing to launch sets
    // *empty. Then the parameters of each stage.
    quern_status (*check_args)(const quern_spec *spec, const quern_args *args, bool *empty);
    bool args_are_plain;      // at the glance's sizes check_args asks for what qn_check_args does, and a first size
    bool workspace_by_config; // a configuration needs a workspace at every size but 0, or at none
    void (*sizes_of)(const quern_args *args, void *sizes);
    void (*launch)(const quern_spec *spec, const qn_config *config, const qn_plan *plan, const qn_device_limits *limits,
                   const quern_args *args, size_t stage, qn_launch *launch);

    // The oracle, on host pointers (src/reference/<family>.c).
    quern_status (*reference)(const quern_spec *spec, const quern_args *args);
    // May be NULL. Whether what kernels trust in host tensors of positions is in range (src/reference/contents.c): for the
    // command, before it computes anywhere.
    quern_status (*contents)(const quern_spec *spec, const quern_args *args);
    // How far a number of a floating-point output may be from the oracle's `want`, as far as that is known without the
    // inputs (src/reference/tolerance.c). NULL: qn_tolerance_default.
    double (*tolerance)(const quern_spec *spec, const qn_tensor *tensor, double want);
    // May be NULL. Why integers may differ from those of another implementation that is as right.
    const char *integers_note;
} qn_family;

// The list of families: the one line that a new family adds.
#define QN_FAMILIES(X) X(softmax_topk) X(gate) X(router) X(attention) X(indexer)

#define X(name) extern const qn_family qn_family_##name;
QN_FAMILIES(X)
#undef X

const qn_family *const *qn_families(size_t *count);
quern_status qn_family_find(const char *name, const qn_family **family); // UNKNOWN_FAMILY lists the known ones

// ---- generic over the lists (ops/spec.c)

// Every generic check (required, ranges, names, structure size), then family->check. QUERN_OK: the spec is valid.
// A structure from an older, shorter header is completed with defaults into *full.
quern_status qn_spec_complete(const quern_spec *spec, const qn_family **family, quern_any_spec *full);
quern_status qn_spec_write(const qn_family *family, const quern_spec *spec, qn_text *text); // canonical text
quern_status qn_spec_set(const qn_family *family, quern_spec *spec, const char *name, const char *value);
// Of integer types, also an axis of axis_length; 0 if there is none.
int64_t qn_spec_number(const qn_family *family, const quern_spec *spec, const char *field);

// Descriptor of a valid spec: its fields as fixed 8-byte words, for the memory table. Returns how many words.
enum { QN_DESCRIPTOR_WORDS = 40 };
size_t qn_spec_descriptor(const qn_family *family, const quern_spec *spec, uint64_t words[QN_DESCRIPTOR_WORDS]);

// ---- generic over the buckets (ops/buckets.c, ops/bucket_find.c)

// What consecutive buckets are called together: "rows 1..4" to "rows 15..30" is "rows 1..30".
void qn_buckets_name(const qn_family *family, size_t first, size_t last, char *text, size_t bytes);

// "rows=8", from a family's sizes structure, and back. BAD_VALUE: a text that qn_sizes_write does not write.
void qn_sizes_write(const qn_family *family, const void *sizes, qn_text *text);
quern_status qn_sizes_read(const qn_family *family, const char *text, void *sizes);

// The bucket of a result that is called so and was timed at these sizes: the one of the name; for a name of the family's
// kind with other borders, which hold the sizes, the one that has them now. Sets no message.
bool qn_bucket_find(const qn_family *family, const char *name, const char *timed, size_t *bucket);
// Whether a name is of the family's kind, with these borders or others.
bool qn_bucket_is_range(const qn_family *family, const char *name);

// ---- generic over the tensors (ops/args.c)

// Sizes in range (BAD_SIZE), strides of outer axes (BAD_STRIDE), nulls of tensors that the spec demands (MISSING_ARGUMENT),
// alignment to the element (MISALIGNED). On the launch path.
quern_status qn_check_args(const qn_family *family, const quern_spec *spec, const quern_args *args);
// The same for a family whose first size counts rows: without any there is nothing to do, which asks for no pointers.
quern_status qn_check_rows(const qn_family *family, const quern_spec *spec, const quern_args *args, bool *empty);
// WRONG_FAMILY: "the spec (op) is of FAMILY, the arguments are of …".
quern_status qn_wrong_family(const char *what, const char *family, const quern_args *args);
bool qn_axis_is(const char *axis, const char *name, int64_t *plus); // "B" and "B+1" are of B; *plus: 0 or 1
bool qn_tensor_is_given(const qn_family *family, const quern_spec *spec, const qn_tensor *tensor);
const char *qn_stride_axis(const qn_tensor *tensor, size_t axis); // <axis> of the stride's name
quern_dtype qn_tensor_dtype(const qn_family *family, const quern_spec *spec, const qn_tensor *tensor);
size_t qn_dtype_bytes(quern_dtype dtype);
const char *qn_dtype_name(quern_dtype dtype);

// Fills an argument structure (zeroed, args_bytes long) from named arguments.
quern_status qn_args_from_names(const qn_family *family, const quern_argument *arguments, size_t count,
                                quern_args *args);

// ---- generic over the knobs (ops/config.c)
bool qn_knob_has(const qn_knob *knob, int64_t value); // whether it is one of the choices
void qn_config_write(const qn_family *family, const qn_config *config, qn_text *text); // "plan=cluster block=512 …"
quern_status qn_config_parse(const qn_family *family, const char *text, qn_config *config);

// ---- generic over knobs and plans (ops/knobs.c). A knob is unused in a configuration when each of its choices gives the
// same plan: so whatever a knob changes must show in the plan.

// Whether a configuration has every knob that it uses and a plan on this architecture: to be asked before plan is, about
// configurations from outside. NO_PLAN with plan's own message, MISSING_FIELD, BAD_VALUE.
quern_status qn_config_check(const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                             const qn_config *config);
// The same, with unused knobs set to 0, so that configurations of the same kernels are equal.
quern_status qn_config_canonical(const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                                 const qn_config *config, qn_config *canonical);
// The library's own choice for a bucket on a device of an architecture with so many SMs.
void qn_config_choose(const qn_family *family, const quern_spec *spec, const qn_arch *arch, int sm_count, size_t bucket,
                      qn_config *config);
// A spec whose field batch_invariant is 1: choose gives every bucket the same configuration, and nothing may change that.
bool qn_spec_has_one_config(const qn_family *family, const quern_spec *spec);

#endif
