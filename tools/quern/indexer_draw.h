// SPDX-License-Identifier: Apache-2.0
// Numbers and bytes as indexer's inputs hold them when a model wrote them: codes of quantised normal numbers, scales
// within four times each other. Used where it is timed: by its bench and by the tuner's subject.
#ifndef QUERN_TOOLS_INDEXER_DRAW_H
#define QUERN_TOOLS_INDEXER_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/family.h"

typedef enum indexer_scale {
    INDEXER_SCALE_POWER,
    INDEXER_SCALE_E4M3,
    INDEXER_SCALE_F32
} indexer_scale; // 1, 1, 4 bytes

// state: any number but 0, which moves on.
uint64_t drawn_number(uint64_t *state);
float drawn_normal(uint64_t *state);
void draw_codes(uint64_t *state, bool fp8, uint8_t *out, size_t bytes); // two FP4 a byte, or E4M3
void draw_scales(uint64_t *state, indexer_scale kind, uint8_t *out, size_t bytes);
// The tensor keys of any layout: where pages hold their scales too, these follow a page's codes.
void draw_keys(uint64_t *state, const quern_indexer_spec *s, uint8_t *out, size_t bytes);

#endif
