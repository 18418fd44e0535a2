// SPDX-License-Identifier: Apache-2.0
// `quern pack` and `quern unpack`: index keys between numbers and the codes of indexer's layouts, as .npy files.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "command.h"
#include "npy.h"
#include "reference/reference.h"

static const char *const layouts[] = {"nvfp4_heads", "mxfp4_shared", "fp8_shared"};
enum { LAYOUTS = QN_COUNT(layouts), OPERANDS = 4 };
enum { IN, KEYS, KEY_SCALE, TENSOR_SCALE }; // OUT in the place of IN
static const char *const pack_names[OPERANDS] = {"in", "keys", "key_scale", "tensor_scale"};
static const char *const unpack_names[OPERANDS] = {"out", "keys", "key_scale", "tensor_scale"};

static const char pack_text[] =
    "LAYOUT is nvfp4_heads, mxfp4_shared or fp8_shared. in: f32, f16 or bf16, [..., columns], columns a multiple of "
    "32\n"
    "(nvfp4_heads: all heads of an entry). Rounds to nearest even; quern.h section 7.4 has the rules for scales. With\n"
    "--page N (shared layouts, in [entries, C]): keys [pages, bytes], a page's values and then its scales, no "
    "key_scale;\n"
    "entries that fill the last page are zeros.\n";
static const char unpack_text[] = "The numbers that stand in the codes, f32: out [..., columns].\n";

typedef struct packing {
    quern_indexer_layout layout;
    const char *file[OPERANDS];
    int64_t page, rows, columns;
    npy_shape shape; // of the numbers
    float *x;
    uint8_t *values, *scales;
    float tensor;
} packing;

static int64_t value_bytes(const packing *p)
{
    return p->layout == QUERN_INDEXER_FP8_SHARED ? p->columns : p->columns / 2;
}

static int64_t scale_bytes(const packing *p)
{
    if (p->layout == QUERN_INDEXER_FP8_SHARED) return 4;
    return p->columns / (p->layout == QUERN_INDEXER_NVFP4_HEADS ? 16 : 32);
}

static bool parse(int argc, char **argv, const char *const *names, packing *p)
{
    size_t layout = 0;
    while (layout < LAYOUTS && (argc < 2 || strcmp(argv[1], layouts[layout]))) layout++;
    if (layout == LAYOUTS) {
        command_usage("the layout is needed first: nvfp4_heads, mxfp4_shared or fp8_shared");
        return false;
    }
    p->layout = (quern_indexer_layout)layout;
    for (int i = 2; i < argc; i++) {
        size_t name = 0, length = strcspn(argv[i], "=");
        while (name < OPERANDS && (strlen(names[name]) != length || strncmp(argv[i], names[name], length))) name++;
        if (name == OPERANDS || argv[i][length] != '=' || !argv[i][length + 1] || p->file[name]) {
            command_usage("'%s': once each, %s, %s, %s and %s =FILE.npy are known", argv[i], names[0], names[1],
                          names[2], names[3]);
            return false;
        }
        p->file[name] = argv[i] + length + 1;
    }
    bool heads = p->layout == QUERN_INDEXER_NVFP4_HEADS;
    for (size_t i = 0; i < OPERANDS; i++) {
        bool needed = i != TENSOR_SCALE && (i != KEY_SCALE || !p->page);
        if (heads) needed = true;
        if (needed == (p->file[i] != NULL)) continue;
        command_usage(needed ? "%s=FILE.npy is needed" : "%s is given, and this layout or --page has none", names[i]);
        return false;
    }
    for (size_t i = 0; i < OPERANDS; i++)
        for (size_t k = 0; k < i; k++)
            if (p->file[i] && p->file[k] && arrays_same_file(p->file[i], p->file[k])) {
                command_usage("%s and %s are the same file, %s", names[k], names[i], p->file[i]);
                return false;
            }
    if (heads && p->page)
        command_usage("--page: pages of nvfp4_heads are its blocks: in [pages, entries, columns]");
    else if (p->page % 8)
        command_usage("--page %lld: indexer's pages have a multiple of 8 entries, up to 4096", (long long)p->page);
    return !(heads && p->page) && p->page % 8 == 0;
}

static void set_columns(packing *p, int64_t columns)
{
    p->columns = columns, p->rows = 1;
    for (size_t i = 0; i + 1 < p->shape.rank; i++) p->rows *= p->shape.extent[i];
}

static quern_status allocate(packing *p)
{
    size_t rows = (size_t)p->rows;
    p->x = p->x ? p->x : malloc(rows * (size_t)p->columns * 4 + 4);
    p->values = p->values ? p->values : malloc(rows * (size_t)value_bytes(p) + 1);
    p->scales = p->scales ? p->scales : malloc(rows * (size_t)scale_bytes(p) + 1);
    return p->x && p->values && p->scales ? QUERN_OK : qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
}

// ---- files

static quern_status write_file(const char *file, quern_dtype dtype, const npy_shape *shape, const void *data)
{
    output_file writer = {0};
    QN_TRY(output_open(file, OUTPUT_FILE, &writer));
    quern_status status = npy_write(&writer, dtype, shape, data);
    if (status == QUERN_OK) status = output_close(&writer);
    if (status == QUERN_OK) status = output_commit(&writer);
    output_abort(&writer);
    return status;
}

static quern_status read_numbers(packing *p)
{
    npy_array a;
    QN_TRY(npy_read(p->file[IN], &a));
    quern_status status = QUERN_OK;
    bool known = a.dtype == QUERN_F32 || a.dtype == QUERN_F16 || a.dtype == QUERN_BF16;
    p->shape = a.shape;
    if (!known || a.shape.rank < 2)
        status = qn_fail(QUERN_BAD_FILE, "%s: f32, f16 or bf16 of at least two axes is needed", p->file[IN]);
    if (status == QUERN_OK) set_columns(p, a.shape.extent[a.shape.rank - 1]);
    if (status == QUERN_OK) status = allocate(p);
    for (int64_t i = 0; status == QUERN_OK && i < a.count; i++)
        p->x[i] = a.dtype == QUERN_F32    ? ((const float *)a.data)[i]
                  : a.dtype == QUERN_BF16 ? qn_bf16_to_f32(((const uint16_t *)a.data)[i])
                                          : qn_f16_to_f32(((const uint16_t *)a.data)[i]);
    npy_fini(&a);
    return status;
}

static quern_status read_bytes(const char *file, quern_dtype dtype, npy_array *a)
{
    QN_TRY(npy_read(file, a));
    if (a->dtype == dtype && a->shape.rank >= 1) return QUERN_OK;
    npy_fini(a);
    return qn_fail(QUERN_BAD_FILE, "%s: %s is needed", file, dtype == QUERN_U8 ? "u1" : "f32");
}

// What the numbers of a file are not good for is no mistake of the command line's.
static quern_status of_file(quern_status status, const char *file)
{
    return status == QUERN_BAD_VALUE || status == QUERN_BAD_SIZE
               ? qn_fail(QUERN_BAD_FILE, "%s: %s", file, quern_message())
               : status;
}

// ---- pack

// Pages of values, then scales; the last is filled up with zeros.
static quern_status write_pages(const packing *p)
{
    int64_t value = value_bytes(p), scale = scale_bytes(p), pages = (p->rows + p->page - 1) / p->page;
    npy_shape shape = {2, {pages, p->page * (value + scale)}};
    uint8_t *out = calloc((size_t)npy_shape_count(&shape) + 1, 1);
    if (!out) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    for (int64_t r = 0; r < p->rows; r++) {
        uint8_t *page = out + r / p->page * shape.extent[1];
        memcpy(page + r % p->page * value, p->values + r * value, (size_t)value);
        memcpy(page + p->page * value + r % p->page * scale, p->scales + r * scale, (size_t)scale);
    }
    quern_status status = write_file(p->file[KEYS], QUERN_U8, &shape, out);
    free(out);
    return status;
}

static quern_status pack(packing *p)
{
    bool fp8 = p->layout == QUERN_INDEXER_FP8_SHARED, heads = p->layout == QUERN_INDEXER_NVFP4_HEADS;
    QN_TRY(read_numbers(p));
    quern_status status =
        quern_pack(p->layout, p->x, p->rows, p->columns, p->values, p->scales, heads ? &p->tensor : NULL);
    if (status != QUERN_OK) return of_file(status, p->file[IN]);
    if (p->page) return write_pages(p);
    npy_shape shape = p->shape, one = {1, {1}};
    shape.extent[shape.rank - 1] = value_bytes(p);
    QN_TRY(write_file(p->file[KEYS], QUERN_U8, &shape, p->values));
    shape.extent[shape.rank - 1] = scale_bytes(p);
    if (fp8) shape.rank--;
    QN_TRY(write_file(p->file[KEY_SCALE], fp8 ? QUERN_F32 : QUERN_U8, &shape, p->scales));
    return heads ? write_file(p->file[TENSOR_SCALE], QUERN_F32, &one, &p->tensor) : QUERN_OK;
}

int command_pack(int argc, char **argv)
{
    packing p = {0};
    const command_option options[] = {
        {"page", 0, "N", COMMAND_NUMBER, &p.page, 1, 4096, "shared layouts: entries a page, a multiple of 8"},
        COMMAND_OPTION_END,
    };
    const command_syntax syntax = {
        "quern pack LAYOUT in=FILE keys=FILE [key_scale=FILE] [tensor_scale=FILE] [--page N]", pack_text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (!parse(argc, argv, pack_names, &p)) return COMMAND_USAGE;
    quern_status status = pack(&p);
    free(p.x), free(p.values), free(p.scales);
    return status == QUERN_OK ? COMMAND_OK : command_status(status);
}

// ---- unpack

static quern_status unpack(packing *p)
{
    bool fp8 = p->layout == QUERN_INDEXER_FP8_SHARED, heads = p->layout == QUERN_INDEXER_NVFP4_HEADS;
    npy_array keys, scales, tensor = {0};
    QN_TRY(read_bytes(p->file[KEYS], QUERN_U8, &keys));
    p->values = keys.data, p->shape = keys.shape;
    set_columns(p, keys.shape.extent[keys.shape.rank - 1] * (fp8 ? 1 : 2));
    p->shape.extent[p->shape.rank - 1] = p->columns;
    QN_TRY(read_bytes(p->file[KEY_SCALE], fp8 ? QUERN_F32 : QUERN_U8, &scales));
    p->scales = scales.data;
    if (p->columns % 32 || (int64_t)scales.bytes != p->rows * scale_bytes(p))
        return qn_fail(QUERN_BAD_FILE, "%s: %lld rows of %lld columns need %lld bytes of scales", p->file[KEY_SCALE],
                       (long long)p->rows, (long long)p->columns, (long long)(p->rows * scale_bytes(p)));
    if (heads) {
        QN_TRY(read_bytes(p->file[TENSOR_SCALE], QUERN_F32, &tensor));
        if (tensor.count == 1) memcpy(&p->tensor, tensor.data, 4);
        bool single = tensor.count == 1;
        npy_fini(&tensor);
        if (!single) return qn_fail(QUERN_BAD_FILE, "%s: one number is needed", p->file[TENSOR_SCALE]);
    }
    QN_TRY(allocate(p));
    quern_status status = quern_unpack(p->layout, p->values, p->scales, &p->tensor, p->rows, p->columns, p->x);
    if (status != QUERN_OK) return of_file(status, p->file[KEYS]);
    return write_file(p->file[IN], QUERN_F32, &p->shape, p->x);
}

int command_unpack(int argc, char **argv)
{
    packing p = {0};
    const command_option options[] = {COMMAND_OPTION_END};
    const command_syntax syntax = {"quern unpack LAYOUT keys=FILE key_scale=FILE [tensor_scale=FILE] out=FILE",
                                   unpack_text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (!parse(argc, argv, unpack_names, &p)) return COMMAND_USAGE;
    quern_status status = unpack(&p);
    free(p.x), free(p.values), free(p.scales);
    return status == QUERN_OK ? COMMAND_OK : command_status(status);
}
