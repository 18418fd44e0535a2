// SPDX-License-Identifier: Apache-2.0
// FP4 and FP8 codes: to numbers, exactly, and from them, to nearest even. Used by the reference of indexer, packing and
// tests. Formats: E2M1 (4 bits, no infinity, no NaN), E4M3 (8 bits, largest 448, 0x7F and 0xFF are NaN), UE8M0 (8 bits,
// 2^(e-127), 255 is NaN).
#ifndef QN_REFERENCE_FORMATS_H
#define QN_REFERENCE_FORMATS_H

#include <stdint.h>

float qn_e2m1_to_f32(unsigned code);                      // of the low four bits
double qn_e2m1_at(const uint8_t *bytes, int64_t element); // the even element is in the low nibble
float qn_e4m3_to_f32(uint8_t code);
double qn_ue8m0_to_f64(uint8_t code);

// To nearest, ties to even, beyond the largest number the largest; -0 stays. x is not NaN.
unsigned qn_f64_to_e2m1(double x);
uint8_t qn_f64_to_e4m3(double x);

#endif
