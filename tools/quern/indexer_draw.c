// SPDX-License-Identifier: Apache-2.0
// Draws for indexer's inputs (indexer_draw.h): a xorshift, cheap enough for gigabytes of keys.
#include "indexer_draw.h"

#include <string.h>

uint64_t drawn_number(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

float drawn_normal(uint64_t *state)
{
    int64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t x = drawn_number(state);
        for (int k = 0; k < 4; k++) sum += (int64_t)(x >> 16 * k & 0xFFFF) - 32768;
    }
    return (float)sum / 65536.0f;
}

// FP4 codes by a byte of chance, of numbers whose largest of 32 lies between 3 and 6.
static const uint8_t *fp4_codes(void)
{
    static const uint8_t steps[] = {26, 50, 72, 92, 108, 120, 126}; // of 128: the share below each code
    static uint8_t codes[256];
    for (int i = 0; i < 256 && !codes[255]; i++) {
        uint8_t code = 0;
        while (code < 7 && i % 128 >= steps[code]) code++;
        codes[i] = (uint8_t)(code | (i & 128 ? 8 : 0));
    }
    return codes;
}

void draw_codes(uint64_t *state, bool fp8, uint8_t *out, size_t bytes)
{
    const uint8_t *fp4 = fp4_codes();
    for (size_t i = 0; i < bytes; i += 4) {
        uint64_t x = drawn_number(state);
        for (size_t k = 0; k < 4 && i + k < bytes; k++, x >>= 16)
            out[i + k] = fp8 ? (uint8_t)((x & 0x80) | (0x40 + (x >> 8) % 0x38))
                             : (uint8_t)(fp4[x & 255] | fp4[x >> 8 & 255] << 4);
    }
}

void draw_scales(uint64_t *state, indexer_scale kind, uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += kind == INDEXER_SCALE_F32 ? 4 : 1) {
        uint64_t x = drawn_number(state);
        float single = 0x1p-7f * (1 + (float)(x & 1023) / 1024);
        if (kind == INDEXER_SCALE_F32)
            memcpy(out + i, &single, sizeof single);
        else
            out[i] = (uint8_t)(kind == INDEXER_SCALE_E4M3 ? 0x30 + x % 16 : 124 + x % 3);
    }
}

void draw_keys(uint64_t *state, const quern_indexer_spec *s, uint8_t *out, size_t bytes)
{
    bool fp8 = s->layout == QUERN_INDEXER_FP8_SHARED;
    size_t codes = (size_t)s->page * (size_t)(fp8 ? s->C : s->C / 2);
    size_t scales = (size_t)s->page * (size_t)(fp8 ? 4 : s->C / 32);
    bool paged = s->page && s->layout != QUERN_INDEXER_NVFP4_HEADS; // else scales are a tensor of their own
    size_t at = 0;
    for (; paged && at + codes + scales <= bytes; at += codes + scales) {
        draw_codes(state, fp8, out + at, codes);
        draw_scales(state, fp8 ? INDEXER_SCALE_F32 : INDEXER_SCALE_POWER, out + at + codes, scales);
    }
    draw_codes(state, fp8, out + at, bytes - at);
}
