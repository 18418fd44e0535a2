/* SPDX-License-Identifier: Apache-2.0
 *
 * Quern: GPU kernels made to measure.
 *
 * A spec names an operation and its numbers ("softmax_topk V=49152 K=256 in=bf16"). Quern plans a kernel for exactly
 * that case, writes its CUDA source, compiles it with NVRTC, keeps the cubin in a cache, and launches it through the
 * Driver API on the caller's stream. libcuda and NVRTC are opened at run time: the library compiles and fills caches
 * on a host with neither GPU nor driver, and serves a filled cache on a host without NVRTC.
 *
 * This header is the manual. Read it from the top; stop when you have enough:
 *
 *     1  a complete program             6  launch, arguments by name       11  the host reference
 *     2  rules that hold everywhere     7  softmax_topk, 7.2 … others      12  stores: a cache of your own
 *     3  statuses and messages          8  warm: fill a cache, no GPU      13  kernels of your own, same path
 *     4  open and close                 9  look inside: describe, image    14  counters, log, dumps
 *     5  specs, prepare, workspace     10  specs as text                   (7.2 gate, 7.3 router, 7.4 indexer, 7.5 attention)
 *
 *
 * 1  A complete program: the 50 likeliest tokens of 8 rows of logits.
 *
 * [example]
 *     #include <quern/quern.h>
 *     #include <stdio.h>
 *
 *     // logits: device memory, bf16 [8, 50257]; values: f32 [8, 50]; indices: i32 [8, 50]
 *     int top50(const void *logits, float *values, int *indices, struct CUstream_st *stream)
 *     {
 *         quern *q = NULL;
 *         quern_op *op = NULL;
 *         quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;
 *         quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
 *         spec.V = 50257, spec.K = 50, spec.in = QUERN_BF16;
 *         args.rows = 8, args.logits = logits, args.values = values, args.indices = indices;
 *
 *         quern_status s = quern_open(NULL, &q);
 *         if (s == QUERN_OK) s = quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &op); // slow, once
 *         if (s == QUERN_OK) s = quern_softmax_topk(op, &args, stream);                   // fast, many times
 *         if (s != QUERN_OK) fprintf(stderr, "%s: %s\n", quern_status_name(s), quern_message());
 *         quern_op_release(op);
 *         quern_close(q);
 *         return s == QUERN_OK ? 0 : 1;
 *     }
 * [end]
 *
 *
 * 2  Rules that hold everywhere
 *
 * Errors     Every function that can fail returns a quern_status; 0 is success. quern_message() is this thread's last
 *            message: which field, its value, what is allowed, what to do. A failing call leaves its outputs as they
 *            were. Nothing is printed; log lines go to the callback in the options, if there is one, and to standard
 *            error or a file when $QUERN_LOG asks for it (section 14).
 * Threads    Every function may be called from any thread at any time, unless its comment says otherwise. An op is
 *            immutable and may be launched from many threads at once; a workspace belongs to one op, and to one stream at a
 *            time (section 5).
 * Ownership  The caller owns all device memory, streams, contexts and every pointer it passes; strings and structures
 *            passed in are copied when they are needed later. What a function returns says how long it lives.
 * Context    Quern uses the context that is current on the calling thread and leaves it as it was. It creates none. An op
 *            serves every context of its device; so that no launch loads, prepare it once in each (a hit that only loads).
 * Cost       quern_prepare and quern_warm do everything slow (plan, look up, compile, load). A launch validates sizes,
 *            picks the variant for them and makes one driver call a kernel (with TMA, first one a tensor that describes it on
 *            the host): no allocation, lock, system call or compile.
 * Capture    Launches may be captured into graphs. Preparing while some stream is being captured is safe: the
 *            thread's capture mode is exchanged around module loading.
 * Fork       After fork the child may go on with host-side work (warm, text, reference); it reopens its database by itself.
 *            A child that was forked while a thread of its parent compiled has what is in memory and in stores (with
 *            QUERN_TOOLCHAIN_EXACT stores only if the parent had NVRTC loaded before, to know its version); what
 *            would have to be compiled is WOULD_COMPILE there (NVRTC's locks stay taken in it: compile in the parent or
 *            in a new process). Quern knows of its own compiles only: if other libraries of the process use NVRTC, do
 *            not fork meanwhile. A CUDA context does not survive fork, so device work needs a new process, as ever.
 * Exit       No atexit handler, constructor, signal handler or setlocale. quern_close after the driver shut down is safe.
 * Growth     Structures begin with their size, set by their INIT macro, and only grow at their end: code compiled
 *            against an older header keeps working with a newer library.
 */
#ifndef QUERN_H
#define QUERN_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define QUERN_API
#else
#define QUERN_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define QUERN_VERSION_MAJOR 0
#define QUERN_VERSION_MINOR 1
#define QUERN_VERSION_PATCH 0

/* The version of the library in use, "0.1.0"; lives as long as the process. The macros above are the header's. */
QUERN_API const char *quern_version(void);

struct CUstream_st; /* what CUstream and cudaStream_t point to */

/* ---------------------------------------------------------------------------------------------------------------
 * 3  Statuses and messages
 *
 * One list: name, code, text. Values never change; groups of ten leave room. */
#define QUERN_STATUS_LIST(X) X(OK, 0, "success") QUERN_FAILURE_LIST(X)
#define QUERN_FAILURE_LIST(X)                                                                                          \
    /* arguments of a call */                                                                                          \
    X(BAD_ARGUMENT, 1, "an argument is out of range")                                                                  \
    X(MISSING_ARGUMENT, 2, "a pointer that is needed is null or was not given")                                        \
    X(UNKNOWN_ARGUMENT, 3, "no argument has this name")                                                                \
    X(BAD_SIZE, 4, "a size is out of range")                                                                           \
    X(BAD_STRIDE, 5, "a stride is smaller than what it must step over")                                                \
    X(MISALIGNED, 6, "a pointer is not aligned to its element")                                                        \
    X(SMALL_WORKSPACE, 7, "the workspace is missing or too small")                                                     \
    X(WRONG_FAMILY, 8, "the arguments are those of another family")                                                    \
    /* specs */                                                                                                        \
    X(BAD_SYNTAX, 10, "the spec's text is malformed")                                                                  \
    X(UNKNOWN_FAMILY, 11, "no family has this name")                                                                   \
    X(UNKNOWN_FIELD, 12, "the family has no such field")                                                               \
    X(DUPLICATE_FIELD, 13, "a field is given twice")                                                                   \
    X(MISSING_FIELD, 14, "a field that is required is not given")                                                      \
    X(BAD_VALUE, 15, "a field's value is not allowed")                                                                 \
    X(CONFLICT, 16, "two fields do not go together")                                                                   \
    /* plans */                                                                                                        \
    X(UNKNOWN_ARCH, 20, "no architecture has this name")                                                               \
    X(NO_PLAN, 21, "no plan of this family fits the architecture")                                                     \
    /* compiling */                                                                                                    \
    X(NVRTC_NOT_FOUND, 30, "NVRTC could not be loaded")                                                                \
    X(NVRTC_LACKS_ARCH, 31, "this NVRTC knows none of the targets that fit")                                           \
    X(COMPILE_FAILED, 32, "the kernel did not compile")                                                                \
    X(COMPILE_TIMEOUT, 33, "the compile ran past its time limit")                                                      \
    X(CANCELLED, 34, "the caller cancelled")                                                                           \
    X(BAD_TEMPLATE, 35, "a kernel template could not be read")                                                         \
    /* the cache */                                                                                                    \
    X(NOT_FOUND, 40, "the store has no such entry")                                                                    \
    X(WOULD_COMPILE, 41, "a miss, and nothing may be compiled")                                                        \
    X(STORE_OPEN, 42, "the database could not be opened")                                                              \
    X(STORE_FOREIGN, 43, "the file is not a Quern database")                                                           \
    X(STORE_NEWER, 44, "the database was written by a newer version")                                                  \
    X(STORE_CORRUPT, 45, "the database is damaged")                                                                    \
    X(STORE_BUSY, 46, "the database stayed locked past the time limit")                                                \
    X(STORE_READ_ONLY, 47, "the database is read-only")                                                                \
    X(STORE_FULL, 48, "the disk or a size limit is full")                                                              \
    X(STORE_IO, 49, "reading or writing the database failed")                                                          \
    /* the driver */                                                                                                   \
    X(DRIVER_NOT_FOUND, 50, "libcuda could not be loaded")                                                             \
    X(DRIVER_TOO_OLD, 51, "the driver lacks a function that is needed")                                                \
    X(NO_DEVICE, 52, "there is no such device")                                                                        \
    X(NO_CONTEXT, 53, "no context is current on this thread")                                                          \
    X(WRONG_CONTEXT, 54, "the current context is of another device")                                                   \
    X(LOAD_FAILED, 55, "the driver refused the kernel's image")                                                        \
    X(LAUNCH_FAILED, 56, "the driver refused the launch")                                                              \
    X(DRIVER_ERROR, 57, "a driver call failed")                                                                        \
    /* the machine */                                                                                                  \
    X(OUT_OF_MEMORY, 60, "out of host memory")                                                                         \
    X(FILE_ERROR, 61, "a file could not be opened, read or written")                                                   \
    X(BAD_FILE, 62, "a file's content is not what it should be")                                                       \
    X(UNSAFE_PATH, 63, "a directory's owner or permissions make it unsafe")                                            \
    X(UNSUPPORTED, 64, "not supported on this machine or in this build")                                               \
    X(INTERNAL, 69, "a fault inside Quern; please report it")

typedef enum quern_status {
    QUERN_OK = 0
#define X(name, code, text) , QUERN_##name = code
    QUERN_FAILURE_LIST(X)
#undef X
} quern_status;

/* The status's name ("BAD_VALUE") and its general text; "UNKNOWN" for a number that is none. Static strings. */
QUERN_API const char *quern_status_name(quern_status status);
QUERN_API const char *quern_status_text(quern_status status);

/* This thread's message of its last failing call: one or more lines, no newline at the end. Never NULL; "" before the
 * first failure. A call that succeeds leaves it as it was, whatever it tried on the way. Valid until this thread's next
 * failing call. */
QUERN_API const char *quern_message(void);

/* ---------------------------------------------------------------------------------------------------------------
 * 4  Open and close */

typedef struct quern quern; /* caches, tables, settings. One a process is enough; several are independent. */

typedef enum quern_mode {
    QUERN_MODE_DEFAULT = 0, /* $QUERN_MODE, else normal */
    QUERN_MODE_NORMAL,      /* look up, compile what is missing, store it */
    QUERN_MODE_READ_ONLY,   /* look up, compile what is missing, store nothing */
    QUERN_MODE_STRICT,      /* look up only: a miss is QUERN_WOULD_COMPILE, whose message names the key's parts */
    QUERN_MODE_OFF          /* no database at all: memory only */
} quern_mode;

typedef enum quern_toolchain {
    QUERN_TOOLCHAIN_ANY = 0, /* an entry serves whichever NVRTC compiled it (a hit needs no NVRTC) */
    QUERN_TOOLCHAIN_EXACT    /* only entries of the NVRTC in use */
} quern_toolchain;

/* Which tuning results choose configurations. The order, for each range of sizes: results of this device, of the same
 * architecture and SM count, of the same architecture, the built-in table, the heuristic. Of two in one place the newer
 * counts. Results of another version of Quern, or under another major version of the driver, are kept and not used (the
 * built-in table knows no driver). They are read when a spec is first prepared, and an op stays what it is. A choice
 * never changes indices, nor values beyond their accuracy; a spec with batch_invariant is not tuned. */
typedef enum quern_tuning {
    QUERN_TUNING_DEFAULT = 0, /* $QUERN_TUNE, else normal */
    QUERN_TUNING_NORMAL,      /* all tables: sealed databases, the user's, the built-in one */
    QUERN_TUNING_FROZEN,      /* not the user's database, which may change while others prepare: processes that name the
                                 same sealed_files make the same choices on the same kind of device and driver */
    QUERN_TUNING_OFF          /* the heuristic only */
} quern_tuning;

typedef enum quern_log_level {
    QUERN_LOG_ERROR = 0,
    QUERN_LOG_WARNING,
    QUERN_LOG_INFO,
    QUERN_LOG_DEBUG
} quern_log_level;

/* One line, no newline: "part,level,text", part one of compile, cache, dispatch, load, launch (section 14). Called from
 * any thread, with no lock held; must not call back into the same quern. */
typedef void (*quern_log_fn)(void *user, quern_log_level level, const char *line);

/* Polled while a compile runs (from the compiling thread, some fifty times a second); nonzero cancels it. */
typedef int (*quern_cancel_fn)(void *user);

typedef struct quern_store quern_store; /* section 12 */

/* Zero (or NULL) is always "the default". An environment variable fills a default only; a value given here wins.
 * Variables are read once, by quern_open, and not at all in a setuid process or with ignore_environment. */
typedef struct quern_options {
    size_t size;
    const char *cache_file;   /* the user's database. Default: $QUERN_CACHE_DIR, else $XDG_CACHE_HOME/quern, else
                                      ~/.cache/quern (home from the passwd entry), and in it quern-v1.db; "" means none.
                                      It and folders above it that are missing are made when first needed (mode 0700), but
                                      in a mode that writes nothing; the command refuses a --db without its folder.
                                      A database's path has at most 504 bytes, symbolic links followed: SQLite's limit */
    const char *sealed_files; /* read-only databases asked first, in order, separated by ':'. $QUERN_SEALED */
    const char *nvrtc_file;   /* libnvrtc to load, if this process has loaded none yet. $QUERN_NVRTC */
    const char *driver_file;  /* libcuda to load, if this process has loaded none yet. Default: libcuda.so.1 */
    const char *template_dir; /* kernel templates in place of the embedded ones. $QUERN_TEMPLATES */
    quern_mode mode;          /* $QUERN_MODE: normal, read_only, strict, off */
    quern_toolchain toolchain;
    int busy_timeout_ms;     /* waiting for a locked database. Default 5000; -1: do not wait */
    int flight_timeout_ms;   /* waiting for another process's compile of the same kernel. Default 60000; -1: none */
    int compile_timeout_ms;  /* one compile. Default 120000; -1: no limit. An NVRTC before 12.8 runs to its end */
    int compile_threads;     /* kernels of one spec compiled at a time. Default: the processors this process may use */
    int64_t cache_cap_bytes; /* images in the user's database, oldest use first out. Default 1 GiB; -1: no cap */
    int line_info;           /* 1: kernels carry line information (and are other kernels: it is in the key).
                                     $QUERN_LINE_INFO: 0, 1 */
    int allow_network_fs;    /* 1: write to a database on a network file system all the same */
    int ignore_environment;  /* 1: read no variable */
    quern_log_fn log;        /* may be NULL */
    void *log_user;
    quern_cancel_fn cancel; /* may be NULL. With an NVRTC before 12.8 it is asked before a compile only */
    void *cancel_user;
    const quern_store *store; /* used in place of the SQLite database (copied; section 12). Default NULL */
    quern_tuning tuning;      /* $QUERN_TUNE: normal, frozen, off */
    const char *log_parts;    /* parts of the log that are written to log_file: "compile,cache", "all". $QUERN_LOG */
    const char *log_file;     /* appended to. $QUERN_LOG_FILE; default, and where it takes no lines: standard error */
    const char *dump_dir;     /* a folder for the source, cubin and options of each kernel in use. $QUERN_DUMP */
} quern_options;

/* clang-format off */
#define QUERN_OPTIONS_INIT { sizeof(quern_options), 0, 0, 0, 0, 0, QUERN_MODE_DEFAULT, QUERN_TOOLCHAIN_ANY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, QUERN_TUNING_DEFAULT, 0, 0, 0 }
/* clang-format on */

/* Makes a quern. options may be NULL. Cheap: databases, NVRTC and the driver are opened when they are first needed.
 * A cache that cannot be used is not an error: compiled kernels are kept in memory and one warning is logged.
 * Fails with BAD_ARGUMENT (an option or a variable out of range), MISSING_ARGUMENT (a store without get or put),
 * FILE_ERROR (a relative path, and no working directory), OUT_OF_MEMORY. */
QUERN_API quern_status quern_open(const quern_options *options, quern **out);

/* Frees everything; ops that are still held stay usable until they are released. NULL is allowed. Not while another
 * thread is inside a call on the same quern; launches of ops that are held may go on, but one that logs (the part launch,
 * section 14) is such a call. */
QUERN_API void quern_close(quern *q);

/* ---------------------------------------------------------------------------------------------------------------
 * 5  Specs, prepare, workspace
 *
 * A spec is a structure of one family (quern_softmax_topk_spec, …) whose first member is this. Its INIT macro gives
 * optional fields their defaults and leaves the required ones unset (0). */
typedef struct quern_spec {
    size_t size;        /* of the whole structure */
    const char *family; /* "softmax_topk" */
} quern_spec;

typedef enum quern_dtype {
    QUERN_DTYPE_NONE = 0,
    QUERN_F32,
    QUERN_F16,
    QUERN_BF16,
    QUERN_I32,
    QUERN_I64,
    QUERN_U8
} quern_dtype;

/* A spec made ready for one device: every variant planned, compiled or loaded. Immutable, shared and counted. */
typedef struct quern_op quern_op;

#define QUERN_DEVICE_CURRENT (-1) /* the device of the current context */

/* Makes a spec ready, or returns the op that exists (one look-up without a lock, then; and a load in a context that it was
 * not prepared in before). device is an ordinal or
 * QUERN_DEVICE_CURRENT; a context of that device must be current. May compile (about a second a variant).
 * *op is to be given to quern_op_release. Fails with spec statuses (10…16), plan (20, 21), compile (30…35),
 * WOULD_COMPILE, driver (50…57), OUT_OF_MEMORY. */
QUERN_API quern_status quern_prepare(quern *q, const quern_spec *spec, int device, quern_op **op);

/* The same for a range of sizes only, when it is known which ones will come: from and to are the family's sizes structures,
 * both inclusive. Variants that serve no size of the range are neither compiled nor loaded; a launch that would need one fails
 * with BAD_SIZE. Sizes that no variant depends on, or that the spec's layout does not have, may go from 0 to anything. Ops of
 * different ranges are different ops. Fails with BAD_SIZE too when a size is negative, from's is larger than to's or than a
 * launch may have (to's may: no bound), and with BAD_ARGUMENT for structures without INIT. */
QUERN_API quern_status quern_prepare_sizes(quern *q, const quern_spec *spec, const void *from, const void *to,
                                           int device, quern_op **op);

/* Another reference to the same op; returns it. */
QUERN_API quern_op *quern_op_retain(quern_op *op);

/* Gives a reference back. Kernels stay loaded until quern_close and the last release. NULL is allowed. */
QUERN_API void quern_op_release(quern_op *op);

/* Bytes of device memory that launches with sizes up to these need (a pointer to the family's sizes structure, for
 * example quern_softmax_topk_sizes; attention's Hq and Hkv are exact there); often 0, and 0 when an argument is NULL;
 * SIZE_MAX, with a message, for sizes without INIT. The caller allocates it, aligned to 256 bytes, for this op alone:
 * counters stay there from launch to launch, where another op's would lie elsewhere or begin from another value. A
 * workspace that another op used since must be initialised again. */
QUERN_API size_t quern_workspace_size(const quern_op *op, const void *sizes);

/* Puts the workspace, all bytes of it, into its first state, on the stream: once, and again after a launch that failed.
 * 0 bytes: nothing is done. Fails with MISSING_ARGUMENT, SMALL_WORKSPACE (NULL), MISALIGNED, DRIVER_ERROR. */
QUERN_API quern_status quern_workspace_init(const quern_op *op, void *workspace, size_t bytes,
                                            struct CUstream_st *stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 6  Launch
 *
 * Each family has a structure of arguments, whose first member is this, and a function (section 7 on). Device
 * pointers, sizes by their axis, strides in elements named <tensor>_stride_<axis>, 0 = packed. */
typedef struct quern_args {
    size_t size;        /* of the whole structure */
    const char *family; /* "softmax_topk" */
} quern_args;

/* What every typed launch does, with its statuses, and BAD_ARGUMENT for args without INIT; for code that is generic over
 * families. */
QUERN_API quern_status quern_launch_args(const quern_op *op, const quern_args *args, struct CUstream_st *stream);

/* The same with arguments by name, for bindings: a tensor's name with its pointer; a size's or stride's name, or
 * "workspace_bytes", with its number. Names as in the argument structure; `quern ops FAMILY` lists them. Fails with
 * UNKNOWN_ARGUMENT, BAD_ARGUMENT (given twice), and whatever the typed launch fails with. */
typedef struct quern_argument {
    const char *name;
    void *pointer;
    int64_t number;
} quern_argument;
QUERN_API quern_status quern_launch(const quern_op *op, const quern_argument *arguments, size_t count,
                                    struct CUstream_st *stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 7  softmax_topk: softmax and the K largest of each row, fused and exact
 *
 *     logits[rows, V]  →  values[rows, K], indices[rows, K]
 *
 * Order: descending by logit, equal logits by lowest index, -0 equals +0, NaN of either sign above +inf. Indices are
 * exact for every input, valid and distinct. Values follow IEEE as torch's softmax does: a NaN or +inf in the row makes
 * NaN probabilities, so does a row of -inf; a -inf has probability 0. Logits are read once in the common case.
 * Bitwise equal from run to run. Any row stride ≥ V, any base aligned to its element, odd V at full speed. */
typedef enum quern_value { QUERN_VALUE_PROB = 0, QUERN_VALUE_LOGPROB, QUERN_VALUE_LOGIT } quern_value;
typedef enum quern_norm { QUERN_NORM_ALL = 0, QUERN_NORM_TOPK } quern_norm;

typedef struct quern_softmax_topk_spec {
    quern_spec base;
    int64_t V;         /* vocabulary: 1 … 2^21. Required */
    int64_t K;         /* winners a row: 1 … min(V, 2048). Required */
    quern_dtype in;    /* of logits: QUERN_F32, QUERN_F16, QUERN_BF16. Required */
    quern_dtype index; /* of indices: QUERN_I32 (default), QUERN_I64 */
    quern_value value; /* what values holds: probability, log-probability, the raw logit */
    quern_norm norm;   /* softmax over all V, or over the K kept */
    int temperature;   /* 1: temperature[rows] is given. Order uses the logits as they are, values (x - max) / T;
                            T = 0 is the limit (tied maxima share the mass), T < 0 or NaN makes the row's values NaN */
    int lse;   /* 1: lse[rows] is written: log of the sum of exp(x / T) over all V, whatever norm; NaN at T = 0 */
    int token; /* 1: token[rows] is given; token_value is its log-probability over all V, token_rank how many
                            elements come before it; a token outside [0, V): NaN and -1 */
    int batch_invariant; /* 1: a row's bits do not depend on rows, nor on the row's address */
} quern_softmax_topk_spec;

/* clang-format off */
#define QUERN_SOFTMAX_TOPK_SPEC_INIT { { sizeof(quern_softmax_topk_spec), "softmax_topk" }, 0, 0, QUERN_DTYPE_NONE, QUERN_I32, QUERN_VALUE_PROB, QUERN_NORM_ALL, 0, 0, 0, 0 }
/* clang-format on */

/* Sizes of one launch that are not in the spec: what variants are chosen by. */
typedef struct quern_softmax_topk_sizes {
    size_t size;
    int64_t rows; /* 0 … 2^31 - 1 */
} quern_softmax_topk_sizes;

#define QUERN_SOFTMAX_TOPK_SIZES_INIT                                                                                  \
    {                                                                                                                  \
        sizeof(quern_softmax_topk_sizes), 0                                                                            \
    }

typedef struct quern_softmax_topk_args {
    quern_args base;
    int64_t rows;                /* 0 … 2^31 - 1; 0 launches nothing */
    const void *logits;          /* [rows, V], spec.in */
    int64_t logits_stride_rows;  /* elements from a row to the next: 0 (= V) or ≥ V */
    const float *temperature;    /* [rows], with spec.temperature */
    const int32_t *token;        /* [rows], with spec.token */
    float *values;               /* [rows, K] */
    int64_t values_stride_rows;  /* 0 (= K) or ≥ K */
    void *indices;               /* [rows, K], spec.index */
    int64_t indices_stride_rows; /* 0 (= K) or ≥ K */
    float *lse;                  /* [rows], with spec.lse */
    float *token_value;          /* [rows], with spec.token */
    int32_t *token_rank;         /* [rows], with spec.token */
    void *workspace;             /* quern_workspace_size bytes, aligned to 256; may be NULL when that is 0 */
    size_t workspace_bytes;
} quern_softmax_topk_args;

/* clang-format off */
#define QUERN_SOFTMAX_TOPK_ARGS_INIT { { sizeof(quern_softmax_topk_args), "softmax_topk" }, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Launches on the stream: one driver call. Fails with BAD_SIZE, BAD_STRIDE, MISSING_ARGUMENT, MISALIGNED,
 * SMALL_WORKSPACE, WRONG_FAMILY, LAUNCH_FAILED; then nothing was launched and no output touched. */
QUERN_API quern_status quern_softmax_topk(const quern_op *op, const quern_softmax_topk_args *args,
                                          struct CUstream_st *stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 7.2  gate: which experts a token goes to, and with what weights, in one launch
 *
 *     logits[N, E]  →  weights[N, K], ids[N, K]
 *
 *     a = activation(logit)     score = a + bias     ids: the K best scores     weight = a / Σ a · scale
 *
 * Activation  sqrt_softplus: sqrt(max(x, 0) + log1p(e^-|x|)); sigmoid; softmax over all E. A number in f32: what rounds
 *             to the same f32 is a tie. Within 8 ulp of f64 for every logit; subnormals are kept.
 * Order       descending by score, equal scores by lowest id, so ids are always valid and distinct. A NaN (of the logit,
 *             or of the bias) ranks below every number, lowest id first, has weight 0 and leaves the others alone.
 *             Exact on the activations that the kernel itself computed: where the scores of two experts (or the sums of
 *             two groups) differ by less than activations may be off, 8 ulp each (sigmoids of large logits do), another
 *             implementation, the host reference too, may order them otherwise.
 * Bias        counts for the choice only; the weight is that of the activation itself. -inf is a score like others.
 * Groups      n_group equal runs of experts, of which the topk_group with the largest sum of their two best scores are
 *             kept (a group of one: its one; NaNs do not count; ties: lowest group). An expert of a dropped group is
 *             never chosen, whatever the scores of the others.
 * Weights     with renormalize: a / Σ a · scale over the K, 0 when the sum is 0; else a · scale.
 * Softmax     a row with a NaN or +inf, or of nothing but -inf, has weights NaN and ids 0 … K-1.
 * Given ids   (hash routing) weights of the experts that given_ids names; bias and groups have no part in it, and ids is
 *             not written. An id outside [0, E) has weight NaN and leaves the others alone; ids may repeat.
 *
 * Bitwise equal from run to run. Any row strides, any base aligned to its element; rows whose logits begin at multiples
 * of 16 bytes are read faster. N = 0: success, nothing launched. */
typedef enum quern_act { QUERN_ACT_SQRT_SOFTPLUS = 0, QUERN_ACT_SIGMOID, QUERN_ACT_SOFTMAX } quern_act;

typedef struct quern_gate_spec {
    quern_spec base;
    int64_t E;          /* experts: 1 … 1024. Required */
    int64_t K;          /* chosen a token: 1 … min(32, E · topk_group / n_group). Required */
    quern_dtype in;     /* of logits: QUERN_F32, QUERN_F16, QUERN_BF16. Required */
    quern_act act;      /* QUERN_ACT_SQRT_SOFTPLUS (default), QUERN_ACT_SIGMOID, QUERN_ACT_SOFTMAX */
    int bias;           /* 1: bias[E] is given */
    int64_t n_group;    /* divides E. Default 1 */
    int64_t topk_group; /* 1 … n_group. Default 1 */
    int renormalize;    /* default 1 */
    double scale;       /* default 1; finite in f32, to which it is rounded. Kernels do not depend on it */
    quern_dtype index;  /* of ids: QUERN_I32 (default), QUERN_I64 */
    int given_ids;      /* 1: given_ids[N, K] is given and ids is not written */
} quern_gate_spec;

/* clang-format off */
#define QUERN_GATE_SPEC_INIT { { sizeof(quern_gate_spec), "gate" }, 0, 0, QUERN_DTYPE_NONE, QUERN_ACT_SQRT_SOFTPLUS, 0, 1, 1, 1, 1.0, QUERN_I32, 0 }
/* clang-format on */

/* Sizes of one launch that are not in the spec: what variants are chosen by. */
typedef struct quern_gate_sizes {
    size_t size;
    int64_t N; /* tokens: 0 … 2^31 - 1 */
} quern_gate_sizes;

#define QUERN_GATE_SIZES_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(quern_gate_sizes), 0                                                                                    \
    }

typedef struct quern_gate_args {
    quern_args base;
    int64_t N;                  /* 0 … 2^31 - 1; 0 launches nothing */
    const void *logits;         /* [N, E], spec.in */
    int64_t logits_stride_N;    /* elements from a token to the next: 0 (= E) or ≥ E */
    const float *bias;          /* [E], with spec.bias */
    const int32_t *given_ids;   /* [N, K], with spec.given_ids */
    int64_t given_ids_stride_N; /* 0 (= K) or ≥ K */
    float *weights;             /* [N, K] */
    int64_t weights_stride_N;   /* 0 (= K) or ≥ K */
    void *ids;                  /* [N, K], spec.index; without spec.given_ids */
    int64_t ids_stride_N;       /* 0 (= K) or ≥ K */
    void *workspace;            /* none is needed: may be NULL */
    size_t workspace_bytes;
} quern_gate_args;

/* clang-format off */
#define QUERN_GATE_ARGS_INIT { { sizeof(quern_gate_args), "gate" }, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Launches on the stream: one driver call. Fails with BAD_SIZE, BAD_STRIDE, MISSING_ARGUMENT, MISALIGNED, WRONG_FAMILY,
 * LAUNCH_FAILED; then nothing was launched and no output touched. */
QUERN_API quern_status quern_gate(const quern_op *op, const quern_gate_args *args, struct CUstream_st *stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 7.3  router: the dense router of a mixture of experts and its gate behind one call
 *
 *     x[N, D], w[E, D] or [D, E]  →  weights[N, K], ids[N, K], on request logits[N, E]
 *
 *     logit[n, e] = Σ_d x[n, d] · w[e, d], then the gate of section 7.2 on each row
 *
 * Up to 64 tokens one launch (two on a device with fewer SMs than its kind usually has, and for some specs of more than
 * 512 experts); more tokens two. Each logit is an f32 sum in a fixed order, so results are bitwise equal from run to run,
 * within D · 2^-24 · Σ|x · w| of the exact one; where an input is f32, or the types differ, every product is an f32 fma (no
 * TF32). A sum or partial sum that f32 cannot hold is an infinity, and two of opposite signs make a NaN, even where the whole
 * sum is a number that f32 holds. All else is the gate's contract, with logits of f32: ids are exact on the kernel's
 * own logits and activations, and another implementation's may differ where logits or activations are closer than these
 * bounds.
 *
 * The workspace carries partial sums between the launch's CTAs: quern_workspace_init before the first launch, one stream
 * at a time. CTAs wait for each other for about a second at most; if that was not enough (the device was not ours), the
 * token's weights are NaN, its ids 0 … K-1, and the workspace must be initialised again. One launch does everything only
 * where all its CTAs fit on the SMs that the driver reports for the device, which under MPS are those of the process. What
 * it does not report is a context with fewer SMs of its own (a green context): such a context needs 65 of them, or more
 * than N, since the CTAs that wait are the last N.
 *
 * Any row strides, any base aligned to its element; rows that begin at multiples of 16 bytes are read faster. N = 0:
 * success, nothing launched. N goes as far as there are CTAs: to 2^31 - 1 tiles of 8 tokens and 8 experts. */
typedef enum quern_w_layout { QUERN_W_ED = 0, QUERN_W_DE } quern_w_layout;

typedef struct quern_router_spec {
    quern_spec base;
    int64_t D;               /* of a token's x: a multiple of 8, 8 … 65536. Required */
    int64_t E;               /* experts: 1 … 1024. Required */
    int64_t K;               /* chosen a token: 1 … min(32, E · topk_group / n_group). Required */
    quern_dtype in;          /* of x: QUERN_F32, QUERN_F16, QUERN_BF16. Required */
    quern_dtype w;           /* of w: the same choices. Required */
    quern_w_layout w_layout; /* QUERN_W_ED (default): w[E, D]; QUERN_W_DE: w[D, E] */
    int batch_invariant;     /* 1: a token's bits do not depend on N, nor on its place among the tokens */
    quern_act act;           /* from here on as in the gate's spec */
    int bias;
    int64_t n_group;
    int64_t topk_group;
    int renormalize;
    double scale;
    quern_dtype index;
    int given_ids;
    int logits; /* 1: logits[N, E] is written */
} quern_router_spec;

/* clang-format off */
#define QUERN_ROUTER_SPEC_INIT { { sizeof(quern_router_spec), "router" }, 0, 0, 0, QUERN_DTYPE_NONE, QUERN_DTYPE_NONE, QUERN_W_ED, 0, QUERN_ACT_SQRT_SOFTPLUS, 0, 1, 1, 1, 1.0, QUERN_I32, 0, 0 }
/* clang-format on */

/* Sizes of one launch that are not in the spec: what variants are chosen by. */
typedef struct quern_router_sizes {
    size_t size;
    int64_t N; /* tokens: 0 … 2^31 - 1 */
} quern_router_sizes;

#define QUERN_ROUTER_SIZES_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(quern_router_sizes), 0                                                                                  \
    }

typedef struct quern_router_args {
    quern_args base;
    int64_t N;          /* 0 … 2^31 - 1; 0 launches nothing */
    const void *x;      /* [N, D], spec.in */
    int64_t x_stride_N; /* elements from a token to the next: 0 (= D) or ≥ D */
    const void *w;      /* [E, D] or [D, E], spec.w */
    int64_t w_stride_E; /* with QUERN_W_ED: 0 (= D) or ≥ D */
    int64_t w_stride_D; /* with QUERN_W_DE: 0 (= E) or ≥ E */
    const float *bias;  /* [E], with spec.bias */
    const int32_t *given_ids;
    int64_t given_ids_stride_N; /* [N, K], with spec.given_ids: 0 (= K) or ≥ K */
    float *weights;             /* [N, K] */
    int64_t weights_stride_N;   /* 0 (= K) or ≥ K */
    void *ids;                  /* [N, K], spec.index; without spec.given_ids */
    int64_t ids_stride_N;       /* 0 (= K) or ≥ K */
    float *logits;              /* [N, E], with spec.logits */
    int64_t logits_stride_N;    /* 0 (= E) or ≥ E */
    void *workspace;            /* quern_workspace_size bytes, aligned to 256 */
    size_t workspace_bytes;
} quern_router_args;

/* clang-format off */
#define QUERN_ROUTER_ARGS_INIT { { sizeof(quern_router_args), "router" }, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Launches on the stream: one or two driver calls. Fails with BAD_SIZE, BAD_STRIDE, MISSING_ARGUMENT, MISALIGNED,
 * SMALL_WORKSPACE, WRONG_FAMILY, LAUNCH_FAILED; then no output was touched, and after a LAUNCH_FAILED whose message says
 * so the workspace must be initialised again. */
QUERN_API quern_status quern_router(const quern_op *op, const quern_router_args *args, struct CUstream_st *stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 7.4  indexer: scores of a sequence's entries and the k largest, for sparse attention, fused and exact
 *
 *     score[t, s] = Σ_h w[t, h] · ReLU(q[t, h] · key[s(, h)])     s < length[t]     →  indices[t, k], scores[t, k]
 *
 * Order     descending by score, equal scores by lowest index, -0 equals +0, NaN after every number. Exact on the scores
 *           that the kernel computed, whatever ties there are; equal inputs are ties. Fewer entries than k: -1, and -inf.
 * Scores    within (C + H) · 2^-24 · Σ_h |w_h| Σ_c |q · key| of the stored numbers' exact score; to the last bit where
 *           all sums are integers of at most 24 bits. A dot that f32 cannot hold is an infinity. ReLU keeps NaN and no
 *           head is left out: w = 0 with an infinite dot is NaN. w may be negative.
 * Index     position inside the row's own sequence. granularity = block: a result is a block of epb consecutive entries
 *           with its largest score; a partial last block counts, a block with a NaN is NaN, k counts blocks.
 * Rows      row t belongs to sequence row_seq[t] (0 without) and sees its first length[t] entries: causality is length.
 *
 * Layouts   of keys. Even element in the low nibble of a byte; scales by flat index.
 *           nvfp4_heads   keys[blocks, epb, H·C/2], key_scale[blocks, epb, H·C/16] E4M3, tensor_scale[1]. Head h has its
 *                         own key: bytes h·C/2 …, scales h·C/16 …, one for 16 elements. element = E2M1 · E4M3 · f32
 *           mxfp4_shared  keys[L, C/2], key_scale[L, C/32] UE8M0: byte e is 2^(e-127), 255 is NaN; one key for all heads
 *           fp8_shared    keys[L, C] E4M3, key_scale[L] f32
 *           Contiguous: sequences one after another, the first entries in cu_keys, or one sequence from 0 on. Paged, of
 *           `page` entries: keys[pages, page · (value + scale bytes)], the values of a page's entries, then their scales
 *           (f32 of fp8_shared too), no key_scale; nvfp4_heads as above with epb = page. Position s is entry s % page of
 *           page block_table[sequence, s / page]. Words past ceil(length / page) are never used, nor pages past them read;
 *           within [, columns] the words themselves may be loaded before the length is known.
 * Example   nvfp4_heads, H = 2, C = 32: an entry has 32 bytes of values, head 1 from byte 16 on, and 4 of scales, head 1
 *           from byte 2 on. Element 17 of head 1 is the high nibble of byte 16 + 8 = 24; its scale is byte 2 + 1 = 3. With
 *           byte 24 = 0xB2, scale byte 3 = 0x3C and tensor_scale 0.5: nibble 0xB = -1.5, 0x3C = 1.5, so -1.125; element 16,
 *           the low nibble 2, is 1 · 1.5 · 0.5 = 0.75.
 *
 * Bitwise equal from run to run. Any strides, any base aligned to its element; multiples of 16 bytes are read faster. */
typedef enum quern_indexer_layout {
    QUERN_INDEXER_NVFP4_HEADS = 0,
    QUERN_INDEXER_MXFP4_SHARED,
    QUERN_INDEXER_FP8_SHARED
} quern_indexer_layout;
typedef enum quern_indexer_q {
    QUERN_INDEXER_Q_BF16 = 0,
    QUERN_INDEXER_Q_F16,
    QUERN_INDEXER_Q_FP8,  /* E4M3 [T, H, C] and q_scale f32 [T, H] */
    QUERN_INDEXER_Q_MXFP4 /* [T, H, C/2] and q_scale UE8M0 [T, H, C/32] */
} quern_indexer_q;
typedef enum quern_granularity { QUERN_GRANULARITY_ENTRY = 0, QUERN_GRANULARITY_BLOCK } quern_granularity;

typedef struct quern_indexer_spec {
    quern_spec base;
    int64_t H;                     /* heads: 1 … 128. Required */
    int64_t C;                     /* elements a head, 32 … 256 in steps of 32. Required */
    quern_indexer_layout layout;   /* default mxfp4_shared */
    int64_t k;                     /* winners a row: 1 … 2048. Required */
    quern_indexer_q q;             /* default bf16 */
    int64_t page;                  /* entries a page, a multiple of 8 up to 4096; 0 (default): contiguous */
    quern_granularity granularity; /* default entry */
    int64_t epb;                   /* entries a block, 1 … 1024. Default 1 */
    int scores;                    /* 1: scores is written */
    int row_seq;                   /* 1: row_seq[T] is given */
    int cu_keys;                   /* 1: cu_keys[B + 1] is given; contiguous only */
} quern_indexer_spec;

/* clang-format off */
#define QUERN_INDEXER_SPEC_INIT { { sizeof(quern_indexer_spec), "indexer" }, 0, 0, QUERN_INDEXER_MXFP4_SHARED, 0, QUERN_INDEXER_Q_BF16, 0, QUERN_GRANULARITY_ENTRY, 1, 0, 0, 0 }
/* clang-format on */

/* Sizes of one launch that are not in the spec. Plans are chosen, and workspaces sized, by T, max_length (where that is 0 by
 * L) and B. */
typedef struct quern_indexer_sizes {
    size_t size;
    int64_t T;          /* rows of queries: 0 … 2^24 */
    int64_t max_length; /* the most that length holds; 0: not known. A guess costs time, never exactness */
    int64_t L;          /* entries of contiguous keys */
    int64_t pages, blocks, columns, B;
} quern_indexer_sizes;

/* clang-format off */
#define QUERN_INDEXER_SIZES_INIT { sizeof(quern_indexer_sizes), 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Strides in elements (keys: bytes), 0 = packed. */
typedef struct quern_indexer_args {
    quern_args base;
    int64_t T, max_length;             /* as in the sizes */
    int64_t L, pages, blocks, columns; /* what the layout has; the others 0 */
    int64_t B;                         /* sequences: rows of block_table, cu_keys less one */
    const void *q;
    int64_t q_stride_T, q_stride_H;
    const void *q_scale;
    int64_t q_scale_stride_T, q_scale_stride_H;
    const float *w; /* [T, H] */
    int64_t w_stride_T;
    const void *keys;
    int64_t keys_stride_L, keys_stride_pages, keys_stride_blocks, keys_stride_epb; /* the layout's */
    const void *key_scale;
    int64_t key_scale_stride_L, key_scale_stride_blocks, key_scale_stride_epb;
    const float *tensor_scale;
    const int32_t *length;      /* [T], each at most the keys of its sequence */
    const int32_t *block_table; /* [B, columns] */
    int64_t block_table_stride_B;
    const int32_t *row_seq; /* [T], 0 … B - 1 */
    const int32_t *cu_keys; /* [B + 1], 0, ascending, the last ≤ L */
    int32_t *indices;       /* [T, k] */
    int64_t indices_stride_T;
    float *scores; /* [T, k], with spec.scores */
    int64_t scores_stride_T;
    void *workspace; /* quern_workspace_size bytes, aligned to 256; may be NULL when that is 0 */
    size_t workspace_bytes;
} quern_indexer_args;

/* clang-format off */
#define QUERN_INDEXER_ARGS_INIT { { sizeof(quern_indexer_args), "indexer" }, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Launches on the stream: one driver call. Fails with BAD_SIZE, BAD_STRIDE, MISSING_ARGUMENT, MISALIGNED,
 * SMALL_WORKSPACE, WRONG_FAMILY, LAUNCH_FAILED; then nothing was launched and no output touched. */
QUERN_API quern_status quern_indexer(const quern_op *op, const quern_indexer_args *args, struct CUstream_st *stream);

/* Packing on the host. x is f32 [rows, columns] (columns a multiple of 32), values and scales what the layout has for it:
 *
 *     nvfp4_heads   values [rows, columns/2], scales [rows, columns/16] E4M3, *tensor_scale; columns = H·C. The tensor scale
 *                   is amax / 2688, of all numbers; a block's is its amax / 6 / tensor scale, to nearest even in E4M3
 *     mxfp4_shared  values [rows, columns/2], scales [rows, columns/32] UE8M0: 2^ceil(log2(amax / 6)), not below 2^-126
 *     fp8_shared    values [rows, columns] E4M3, scales f32 [rows]: amax / 448
 *
 * Elements are divided by their scale and rounded to nearest even, beyond the largest number to the largest. A block of
 * zeros has the smallest scale (1 for the f32 ones). A NaN or infinity has no code: BAD_VALUE, with its place.
 * Unpacking gives the numbers that stand in the codes, rounded to f32 once; NaN scale bytes give NaN. Neither values nor
 * scales, those of f32 included, need any alignment. tensor_scale: with nvfp4_heads only; read when it is not 0 on entry
 * to packing, so that parts of a tensor can share one. Both fail with BAD_ARGUMENT (no such layout), BAD_SIZE,
 * MISSING_ARGUMENT. */
QUERN_API quern_status quern_pack(quern_indexer_layout layout, const float *x, int64_t rows, int64_t columns,
                                  void *values, void *scales, float *tensor_scale);

/* The opposite: codes to numbers, x f32 [rows, columns]. */
QUERN_API quern_status quern_unpack(quern_indexer_layout layout, const void *values, const void *scales,
                                    const float *tensor_scale, int64_t rows, int64_t columns, float *x);

/* ---------------------------------------------------------------------------------------------------------------
 * 7.5  attention: fused multi-head attention, forward, any head_dim
 *
 *     q[B, Sq, Hq, d], k[B, Sk, Hkv, d], v[B, Sk, Hkv, dv]  →  out[B, Sq, Hq, dv], lse[B, Sq, Hq]
 *
 *     out = softmax(mask(cap(q · k · scale))) · v     cap(x) = softcap · tanh(x / softcap)
 *
 * Heads     Hq is a multiple of Hkv; query head h reads KV head h / (Hq / Hkv).
 * Position  of query i is i + Sk - Sq (bottom-right), with causal or without. It sees the keys from position - window_left
 *           to position + window_right, both included; -1 is no limit; causal=1 is window_right = 0.
 * Sink      one more logit a head, in the softmax's sum only. lse is natural and without it.
 * Empty     A query that sees no key has out 0 and lse -inf, with a sink too; both are always written. If every score
 *           that it sees is -inf, out is NaN (0 with a sink) and lse -inf.
 * NaN       Positions past a sequence's length and pages that no table entry names never reach the output, whatever they
 *           hold. Every position that a sequence has must be finite to be masked safely: a NaN in its key, or a NaN or
 *           infinity in its row of v, may reach queries that mask it (0 · NaN is NaN). Rows past length_k, in the tail of
 *           a last page, and of varlen before cu_k[0], past cu_k[B] or of other sequences enter no result.
 *           What cu_q, cu_k, length_k and block_table hold is trusted: a launch can't see it. `quern run` checks it.
 * Layouts   dense: as above; with length_k, a sequence has so many keys of its Sk.
 *           varlen: q[Tq, Hq, d], k[Tk, Hkv, d], v, out[Tq, Hq, dv], lse[Tq, Hq]; sequence b is cu[b] … cu[b+1] - 1.
 *           paged: k and v are [pages, page, Hkv, …]; position s of sequence b is row s % page of page
 *           block_table[b, s / page], and there are length_k[b]; q is dense, or ragged with cu_q.
 * Numbers   f32 softmax, P rounded to the type of v, f32 sums. Bitwise equal from run to run. With M(…) for the mean over
 *           the softmax: a score is within e = |scale| · Σ|q · k| · (d / 16 + 4) · 2^-23 + |score| · 2^-22 (with softcap
 *           + softcap · 2^-21) of the exact one, so that large products that cancel cost digits; lse is within
 *           1e-5 + 2 ulp + M(e), out within u · max(M(|v|), M(|v - out|)) + 2 M(e · |v|) + 2 |out| M(e) and half an ulp,
 *           u = 2^-8 for bf16 and 2^-11 for f16, where Σ|v| · 2^-24 / Σe^(score - largest) comes on top (subnormal P).
 *           `quern run --expect` knows the outputs only. For lse it takes the magnitudes of a score's products to add up to 4
 *           times the score at most; where more cancels, and for large values of v, give it a --tolerance.
 *
 * Any strides of batch, sequence and head (so also [B, H, S, d]), any base aligned to its element; multiples of 16 bytes
 * are read faster. No query: success, nothing launched. */
typedef enum quern_layout { QUERN_LAYOUT_DENSE = 0, QUERN_LAYOUT_VARLEN, QUERN_LAYOUT_PAGED } quern_layout;

typedef struct quern_attention_spec {
    quern_spec base;
    int64_t d;            /* head_dim of q and k: a multiple of 8, 8 … 576. Default 64 */
    int64_t dv;           /* of v and out: a multiple of 8, 8 … 512. Default 0: d */
    quern_dtype in;       /* of q, k, v and out: QUERN_BF16 (default), QUERN_F16 */
    quern_layout layout;  /* QUERN_LAYOUT_DENSE (default), QUERN_LAYOUT_VARLEN, QUERN_LAYOUT_PAGED */
    int causal;           /* 1: the same as window_right = 0 */
    int64_t window_left;  /* keys before the query's position that it sees. Default -1: all */
    int64_t window_right; /* and after it */
    double scale;   /* default 0: 1 / sqrt(d); else 1.2e-38 … 1e30 of either sign. Kernels depend on its sign only */
    double softcap; /* default 0: none; else 1e-30 … 1e30, and scale / softcap finite in f32 */
    int sink;       /* 1: sink[Hq] is given */
    int kv_alias;   /* 1: v is the first dv elements of k, and is not given */
    int64_t page;   /* paged: positions a page, a multiple of 16, 16 … 256 */
    int cu_q;       /* 1: cu_q[B + 1] is given and queries are ragged; 0 in varlen, which has it always: the same */
    int length_k;   /* 1: length_k[B] is given; 0 in paged, which has it always: the same. Never with varlen */
    int lse;        /* 1: lse is written */
    int batch_invariant; /* 1: a sequence's bits do not depend on the others */
    int64_t kv_split;    /* keys a split, a multiple of 64: long sequences with few queries are cut at its multiples and
                             merged in order; up to 1073741824 (2^30). Default 0: by the sizes */
} quern_attention_spec;

/* clang-format off */
#define QUERN_ATTENTION_SPEC_INIT { { sizeof(quern_attention_spec), "attention" }, 64, 0, QUERN_BF16, QUERN_LAYOUT_DENSE, 0, -1, -1, 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Sizes of one launch that are not in the spec. Those that a layout does not have are 0. */
typedef struct quern_attention_sizes {
    size_t size;
    int64_t B;       /* sequences */
    int64_t Sq, Sk;  /* positions a sequence; where they differ (varlen, paged): the most, or 0 for not known. Then
                           they choose the plan, and change no result's accuracy */
    int64_t Hq, Hkv; /* heads */
    int64_t Tq, Tk;  /* ragged: rows of q, varlen: rows of k */
    int64_t pages;   /* paged: pages there are */
    int64_t columns; /* paged: columns of block_table */
} quern_attention_sizes;

/* clang-format off */
#define QUERN_ATTENTION_SIZES_INIT { sizeof(quern_attention_sizes), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Strides in elements, 0 = packed in the order of the axes. _B is from a sequence to the next (k and v, paged: from a page
 * to the next), _S from a position to the next, _H from a head to the next. */
typedef struct quern_attention_args {
    quern_args base;
    int64_t B, Sq, Sk, Hq, Hkv, Tq, Tk, pages, columns; /* as in the sizes; each 0 … 2^31 - 1 */
    const void *q;
    int64_t q_stride_B, q_stride_S, q_stride_H;
    const void *k;
    int64_t k_stride_B, k_stride_S, k_stride_H;
    const void *v; /* without kv_alias */
    int64_t v_stride_B, v_stride_S, v_stride_H;
    const float *sink;          /* [Hq], with spec.sink */
    const int32_t *cu_q;        /* [B + 1], ragged queries: 0, ascending, the last ≤ Tq */
    const int32_t *cu_k;        /* [B + 1], varlen */
    const int32_t *block_table; /* [B, columns], paged; words past a sequence's length are never read */
    int64_t block_table_stride_B;
    const int32_t *length_k; /* [B], 0 … Sk, or columns · page */
    void *out;
    int64_t out_stride_B, out_stride_S, out_stride_H;
    float *lse; /* with spec.lse */
    int64_t lse_stride_B, lse_stride_S;
    void *workspace; /* quern_workspace_size bytes, aligned to 256; may be NULL when that is 0 */
    size_t workspace_bytes;
} quern_attention_args;

/* clang-format off */
#define QUERN_ATTENTION_ARGS_INIT { { sizeof(quern_attention_args), "attention" }, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Launches on the stream: one or two driver calls. Fails with BAD_SIZE, BAD_STRIDE, MISSING_ARGUMENT, MISALIGNED,
 * SMALL_WORKSPACE, WRONG_FAMILY, LAUNCH_FAILED; then no output was touched, and after a LAUNCH_FAILED whose message says
 * so the workspace must be initialised again. */
QUERN_API quern_status quern_attention(const quern_op *op, const quern_attention_args *args,
                                       struct CUstream_st *stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 8  Warm: fill a cache on a host without a GPU */

typedef struct quern_warm_report {
    size_t size;
    int variants;      /* plans the spec has on this architecture */
    int kernels;       /* distinct kernels among them */
    int compiled;      /* of these, compiled now */
    int cached;        /* of these, found */
    int stored;        /* compiled and kept in the store: less than compiled when the store failed (see the log) */
    double compile_ms; /* sum over the compiled ones */
    int sealed;        /* of the found ones, from sealed databases */
    int user;          /* and from the user's database or the caller's store; the rest this quern had compiled before */
} quern_warm_report;

#define QUERN_WARM_REPORT_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(quern_warm_report), 0, 0, 0, 0, 0, 0.0, 0, 0                                                            \
    }

/* Compiles and stores every variant of a spec for an architecture ("sm_90a"; with its suffix). Needs no driver.
 * No device is known here, so every configuration is warmed that prepare may choose on some device of the architecture:
 * each result of the tables in use, and the library's own choice (built-in table, else heuristic). Where a tuned choice
 * is missing and nothing may or can be compiled (strict, no NVRTC), prepare takes the library's own. So a warmed cache
 * serves every device of its architecture, whatever tables are found there. The indexer's choice for few rows also depends
 * on how many SMs the device has: a warm of all sizes has what those with few need, one of a range may lack it, and then
 * prepare compiles it, or takes what is right for more SMs and slower.
 * report may be NULL. Fails as quern_prepare does, without the driver's statuses; UNKNOWN_ARCH lists the known ones. */
QUERN_API quern_status quern_warm(quern *q, const quern_spec *spec, const char *arch, quern_warm_report *report);

/* The same for a range of sizes only, as quern_prepare_sizes needs them. */
QUERN_API quern_status quern_warm_sizes(quern *q, const quern_spec *spec, const void *from, const void *to,
                                        const char *arch, quern_warm_report *report);

/* ---------------------------------------------------------------------------------------------------------------
 * 9  Look inside */

typedef enum quern_origin {
    QUERN_ORIGIN_COMPILED = 0, /* by this quern */
    QUERN_ORIGIN_MEMORY,       /* this quern had it already, for another op */
    QUERN_ORIGIN_SEALED,       /* a sealed database */
    QUERN_ORIGIN_USER          /* the user's database, or the caller's store */
} quern_origin;

typedef struct quern_kernel_info {
    size_t size;
    const char *sizes;  /* the sizes this variant serves, "rows 1..4" */
    const char *config; /* "plan=cluster block=512 local_k=4 cluster=16" */
    const char *chosen; /* "tuned (this device)", "tuned (same architecture and SM count)", "tuned (same
                              architecture)", "built-in table", "heuristic" */
    const char *arch;   /* "sm_90a" */
    const char *entry;  /* the kernel's symbol, as profilers show it */
    int threads;        /* a CTA */
    int cluster;        /* CTAs a cluster; 1 = none */
    int registers;      /* a thread */
    int local_bytes;    /* a thread: spills and stack */
    int shared_bytes;   /* a CTA, static and dynamic */
    quern_origin origin;
    double compile_ms; /* when it was compiled, by whoever compiled it */
} quern_kernel_info;

#define QUERN_KERNEL_INFO_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(quern_kernel_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, QUERN_ORIGIN_COMPILED, 0.0                            \
    }

/* How many variants an op has, and how many kernels (stages) a variant runs. 0 for an index that is none. */
QUERN_API size_t quern_op_variants(const quern_op *op);
QUERN_API size_t quern_op_stages(const quern_op *op, size_t variant);

/* Fills *info; its strings live as long as the op. BAD_ARGUMENT for an index that is none, and for an info without INIT. */
QUERN_API quern_status quern_op_describe(const quern_op *op, size_t variant, size_t stage, quern_kernel_info *info);

/* The variant that serves these sizes (the family's sizes structure); quern_op_variants(op) when the op was prepared for
 * others only, and, with a message, for sizes without INIT. */
QUERN_API size_t quern_op_variant_for(const quern_op *op, const void *sizes);

/* The kernel itself, for callers with a loader of their own; lives as long as the op. */
typedef struct quern_image {
    size_t size;
    const void *bytes; /* a cubin */
    size_t byte_count;
    const char *entry;
    int threads;
    int cluster;
    int dynamic_shared_bytes;
    size_t parameter_bytes; /* one parameter, a structure of this size passed by value */
} quern_image;

#define QUERN_IMAGE_INIT                                                                                               \
    {                                                                                                                  \
        sizeof(quern_image), 0, 0, 0, 0, 0, 0, 0                                                                       \
    }

/* Fills *image. BAD_ARGUMENT for an index that is none, and for an image without INIT. */
QUERN_API quern_status quern_op_image(const quern_op *op, size_t variant, size_t stage, quern_image *image);

/* ---------------------------------------------------------------------------------------------------------------
 * 10  Specs as text
 *
 * "family field=value field=value …", in any order, fields separated by blanks. The text form is the same everywhere:
 * the command line, manifests, log lines, cache rows. */

/* Room for the spec of any family. */
typedef union quern_any_spec {
    quern_spec base;
    int64_t align;
    unsigned char bytes[256];
} quern_any_spec;

/* Reads a spec into *spec, which needs no INIT. Every problem has its status (10…16) and a message that names field,
 * value and what is allowed; else MISSING_ARGUMENT, OUT_OF_MEMORY. */
QUERN_API quern_status quern_spec_parse(const char *text, quern_any_spec *spec);

/* Writes the canonical text (fields in the family's order, defaults left out) with a final 0; BAD_SIZE if it does not
 * fit in `bytes` (512 are always enough); of an invalid spec the statuses of parse. */
QUERN_API quern_status quern_spec_format(const quern_spec *spec, char *text, size_t bytes);

/* Says whether a spec is valid, as prepare and warm would: OK, or the statuses of parse. */
QUERN_API quern_status quern_spec_check(const quern_spec *spec);

/* ---------------------------------------------------------------------------------------------------------------
 * 11  The host reference
 *
 * The same contract on host memory, in plain C, accumulated in f64: the oracle of tests and tuner, and what runs where
 * there is no GPU. args is the family's argument structure with host pointers (no workspace). Slow, single-threaded.
 * Fails with spec statuses (10…16), as the launch does, BAD_ARGUMENT for args without INIT, and OUT_OF_MEMORY. */
QUERN_API quern_status quern_reference(const quern_spec *spec, const quern_args *args);

/* ---------------------------------------------------------------------------------------------------------------
 * 12  Stores
 *
 * A store keeps compiled kernels. The built-in one is an SQLite file; this structure of callbacks replaces it (Redis,
 * an object store, a test). Quern verifies what a store returns (whole key, sum), so a store need not be trusted to be
 * right, and never fails a call because a store failed. Callbacks may be called from several threads at once. */
typedef struct quern_record {
    size_t size;
    unsigned char hash[16]; /* XXH3-128 of key, canonical byte order: an index, not an identity */
    const void *key;        /* the complete content that made the kernel */
    size_t key_bytes;
    const char *toolchain;                        /* "nvrtc 13.0 build 3f…" */
    const char *arch;                             /* "sm_90a" */
    const char *entry;                            /* the kernel's symbol */
    const char *spec;                             /* the spec's text, for people */
    int32_t kind;                                 /* 1 = cubin */
    int32_t registers, shared_bytes, local_bytes; /* a thread, a CTA (static), a thread */
    int64_t compile_us;
    int64_t created, used; /* seconds since 1970; 0 in what put is given */
    unsigned char sum[16]; /* XXH3-128 of the image, canonical byte order */
    const void *image;
    size_t image_bytes;
} quern_record;

/* Receives a record, whose pointers are valid during the call. Nonzero stops a listing. */
typedef int (*quern_record_fn)(void *user, const quern_record *record);

struct quern_store {
    size_t size;
    void *self; /* passed to each callback */
    /* Calls found once with the entry of this hash and key, made by this toolchain (NULL: by any, newest first).
     * NOT_FOUND when there is none. */
    quern_status (*get)(void *self, const quern_record *wanted, const char *toolchain, quern_record_fn found,
                        void *user);
    /* Keeps a record; an entry of the same hash and toolchain that exists already stays, which is success. */
    quern_status (*put)(void *self, const quern_record *record);
    /* Calls each for every entry, without its image (image = NULL, image_bytes set) unless with_images. */
    quern_status (*list)(void *self, int with_images, quern_record_fn each, void *user);
    /* Removes the entry of this hash, key and toolchain. Success when there is none. */
    quern_status (*remove)(void *self, const quern_record *record);
};

/* ---------------------------------------------------------------------------------------------------------------
 * 13  Kernels of your own, through the same path
 *
 * Any CUDA source: the same key, tiers, single flight, modes, loading and log as the built-in kernels. It makes Quern the
 * cache of a runtime that writes kernels of its own. The source defines an extern "C" __global__ function, `entry`.
 *
 * The key is the complete content: source, entry, options, headers, digest, architecture. So what comes from outside
 * has to be in it. An #include is resolved from `headers` only. An option that reads or writes something else (an include
 * path, a precompiled header, --time, …), or that Quern does not know, is refused unless `digest` says what it depends
 * on: any bytes that change whenever that content changes, for example a hash of the headers' files. Refused without
 * it, too, is a text that names __has_include, __has_embed, __DATE__, __TIME__ or __TIMESTAMP__ (words that ## makes are not
 * seen), or that compilers or standards of C++ read in two ways, as they do trigraphs. The digest stands
 * for the folders too: with it, include paths are not in the key (but with line information, which has their names). */
typedef struct quern_header {
    const char *name; /* as in #include "name" or <name> */
    const char *text;
} quern_header;

typedef struct quern_source {
    size_t size;
    const char *source;          /* complete CUDA C++ text */
    const char *entry;           /* the kernel's symbol */
    int threads;                 /* the most that a CTA is launched with: 1 … 1024 */
    int cluster;                 /* CTAs a cluster: 0 or 1 = none, to 16 */
    int dynamic_shared_bytes;    /* the most that a CTA is launched with */
    size_t parameter_bytes;      /* of all parameters, laid out as the members of one structure: 0 … 4096 */
    const char *const *options;  /* NVRTC's, one item each ("-DN=4", not "-D", "N=4"), after --gpu-architecture */
    size_t option_count;         /* 0 … 48 */
    const quern_header *headers; /* in any order */
    size_t header_count;         /* 0 … 256 */
    const void *digest;          /* what stands for content outside; part of the key */
    size_t digest_bytes;         /* 0 … 4096; 0 = none */
} quern_source;

#define QUERN_SOURCE_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(quern_source), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                                       \
    }

typedef struct quern_kernel quern_kernel; /* immutable; launched from any thread */

/* As quern_prepare: compiles or finds the kernel and loads it. Nothing of *source is needed afterwards. *kernel is to be
 * given to quern_kernel_release. Fails as quern_prepare does, with BAD_ARGUMENT that names the member, and with BAD_SIZE when
 * the compiled kernel takes another number of parameter bytes. */
QUERN_API quern_status quern_prepare_source(quern *q, const quern_source *source, int device, quern_kernel **kernel);

/* As quern_warm: compiles and stores it for an architecture, without a driver. report may be NULL. Fails as quern_warm and
 * with what quern_prepare_source finds in the source: BAD_ARGUMENT, BAD_SIZE. */
QUERN_API quern_status quern_warm_source(quern *q, const quern_source *source, const char *arch,
                                         quern_warm_report *report);

/* The shape of one launch, inside the limits that the source was prepared with. */
typedef struct quern_geometry {
    size_t size;
    uint32_t grid[3];
    uint32_t threads[3];      /* 0, 0, 0: source.threads × 1 × 1 */
    int dynamic_shared_bytes; /* -1: source.dynamic_shared_bytes */
} quern_geometry;

#define QUERN_GEOMETRY_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(quern_geometry), {1, 1, 1}, {0, 0, 0}, -1                                                               \
    }

/* Launches with a copy of *parameters (parameter_bytes of them: the kernel's parameters as the members of a structure).
 * One driver call; nothing is allocated. Fails with BAD_ARGUMENT, BAD_SIZE, MISSING_ARGUMENT, LAUNCH_FAILED. */
QUERN_API quern_status quern_launch_packed(const quern_kernel *kernel, const quern_geometry *geometry,
                                           const void *parameters, size_t parameter_bytes, struct CUstream_st *stream);

/* What the kernel is and where it came from; its image. As quern_op_describe and quern_op_image; strings and bytes live
 * as long as the kernel. info.sizes and info.config are "", info.chosen is "given". */
QUERN_API quern_status quern_kernel_describe(const quern_kernel *kernel, quern_kernel_info *info);
QUERN_API quern_status quern_kernel_image(const quern_kernel *kernel, quern_image *image);

/* Gives the kernel back. NULL is allowed. */
QUERN_API void quern_kernel_release(quern_kernel *kernel);

/* ---------------------------------------------------------------------------------------------------------------
 * 14  Observe: counters, log, dumps, ranges
 *
 * Log        $QUERN_LOG names parts (compile, cache, dispatch, load, launch, all; between commas) whose lines go to
 *            standard error, or to $QUERN_LOG_FILE. The callback in the options gets all of them but launch, which it gets
 *            when launch is named. One line an event; words and their order are stable, new ones come before spec:
 *              quern,<time>,<process>,compile,info,compiled ms=… arch=… kernel=… bytes=… stored=0|1 spec="…"
 *              quern,…,cache,info,hit tier=sealed|user arch=… kernel=… bytes=… spec="…"
 *              quern,…,cache,info,miss reason=absent|damaged|failed|refused|no_store arch=… kernel=… spec="…"
 *              quern,…,dispatch,info,ready ms=… device=… arch=… variants=… memory=… sealed=… user=… compiled=… spec="…"
 *              quern,…,load,debug,loaded device=… arch=… kernel=… bytes=… spec="…"
 *              quern,…,launch,debug,run arch=… variant=… config="…" rows=8 spec="…"    the sizes by their names
 *            spec is what quern_spec_parse reads ("source ENTRY" for kernels of your own), so a log is a list for
 *            `quern warm --from-log`. The callback's lines are the same without "quern,<time>,<process>,".
 * Dumps      $QUERN_DUMP=FOLDER: <entry>.<arch>.<key's hash>.cu, .cubin and .txt (options, compiler, log) of every kernel
 *            that is compiled or taken from a store, and the .cu of one that does not compile.
 * Ranges     NVTX ranges around prepare, warm, compile and load ("quern:compile <spec>"), and around prepare's look-ups
 *            (tuned, source, find), when a tool has set NVTX_INJECTION64_PATH. Kernels are named by family and shape.
 *            None of this is on the launch path.
 * Lines      $QUERN_LINE_INFO=1: kernels with line information, under the root "/quern/" whatever the folder. */

/* Counters, since quern_open */
typedef struct quern_counters {
    size_t size;
    uint64_t hit_table;  /* prepare found the op in memory */
    uint64_t hit_memory; /* a kernel was in memory, made for another op */
    uint64_t hit_sealed;
    uint64_t hit_user;
    uint64_t miss; /* kernels that no tier had */
    uint64_t compiled;
    uint64_t compile_us;
    uint64_t put_failed;   /* the store did not take a compiled kernel */
    uint64_t get_failed;   /* the store failed, as opposed to having no entry */
    uint64_t bad_rows;     /* rows dropped or passed over: wrong sum, wrong key, refused by the loader */
    uint64_t flight_waits; /* waited for another thread's or process's compile of the same kernel */
    uint64_t flight_timeouts;
    uint64_t miss_absent;    /* of miss: every store answered, and had none */
    uint64_t miss_damaged;   /* of miss: a row was there, and was damaged */
    uint64_t miss_failed;    /* of miss: a store did not answer */
    uint64_t miss_refused;   /* of miss: the driver refused the stored image */
    uint64_t miss_no_store;  /* of miss: there is no store */
    uint64_t would_compile;  /* of miss: not compiled: the mode is strict, or see Fork in section 2 */
    uint64_t compile_failed; /* compiles that gave no kernel */
    uint64_t bytes_found;    /* of images taken from stores */
    uint64_t bytes_compiled; /* of images compiled */
    uint64_t bytes_stored;   /* of images that the store took */
} quern_counters;

#define QUERN_COUNTERS_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(quern_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                       \
    }

/* A snapshot of all counters; each is exact, together they are not from one instant. */
QUERN_API void quern_get_counters(const quern *q, quern_counters *counters);

#ifdef __cplusplus
}
#endif
#endif
