// SPDX-License-Identifier: Apache-2.0
// The rows of hostile cases: what each fill writes, and what it makes of a, b, p, q. `normal` is near enough to a
// standard normal variable, in 2^18 steps, so that ties occur.
#ifndef TESTS_SUPPORT_HOSTILE_FILL_H
#define TESTS_SUPPORT_HOSTILE_FILL_H

#include "support/hostile.h"

// A hash of two numbers: the one source of randomness. hostile_mix(s, i) for i = 0, 1, … is a stream.
uint64_t hostile_mix(uint64_t seed, uint64_t i);
float hostile_normal(uint64_t seed, uint64_t i);

void fill_normal(const hostile_case *c, int64_t row, float *x);      // q + p · normal
void fill_equal(const hostile_case *c, int64_t row, float *x);       // all p
void fill_two_values(const hostile_case *c, int64_t row, float *x);  // a elements are p, scattered; the rest q
void fill_quantised(const hostile_case *c, int64_t row, float *x);   // normal rounded to multiples of p
void fill_ascending(const hostile_case *c, int64_t row, float *x);   // a line through 0, from -p to p
void fill_descending(const hostile_case *c, int64_t row, float *x);  // from p to -p
void fill_ramp_rows(const hostile_case *c, int64_t row, float *x);   // row % 3: random, ascending, descending
void fill_periodic(const hostile_case *c, int64_t row, float *x);    // one element in a is a winner
void fill_one_thread(const hostile_case *c, int64_t row, float *x);  // vectors of a elements, b threads: one thread's
void fill_chunk(const hostile_case *c, int64_t row, float *x);       // 2 K winners one after another, rising
void fill_tie_group(const hostile_case *c, int64_t row, float *x);   // K / 2 above, V / 2 tied, the rest below
void fill_finite(const hostile_case *c, int64_t row, float *x);      // a finite ones, scattered; the rest -inf (b: NaN)
void fill_infinities(const hostile_case *c, int64_t row, float *x);  // row % 4: none but -inf, one +inf, few, mixed
void fill_nans(const hostile_case *c, int64_t row, float *x);        // a NaNs of any sign and payload, scattered
void fill_zeros(const hostile_case *c, int64_t row, float *x);       // -0 and +0, one 2^-24 and one -2^-24
void fill_subnormal(const hostile_case *c, int64_t row, float *x);   // subnormals of the dtype, both signs
void fill_same_prefix(const hostile_case *c, int64_t row, float *x); // f32 that differ in their last 9 bits only
void fill_any_bits(const hostile_case *c, int64_t row, float *x);    // random bit patterns of the dtype
void fill_finite_bits(const hostile_case *c, int64_t row, float *x); // the same without NaN and infinity
void fill_mixed(const hostile_case *c, int64_t row, float *x);       // a fill and its numbers drawn for each row

// Field reports: FR01 … FR05.
void fill_fr01(const hostile_case *c, int64_t row, float *x); // row 0: 0.5, -inf …; row 1: 0.5, NaN …; a: kind of NaN
void fill_fr02(const hostile_case *c, int64_t row, float *x);
void fill_fr03(const hostile_case *c, int64_t row,
               float *x); // a = 0: (i % 7) / 4; 1: first half -inf; 2: last 3, else -inf
void fill_fr04(const hostile_case *c, int64_t row, float *x);       // i % 97 + row
void fill_fr05(const hostile_case *c, int64_t row, float *x);       // 0, at a and b p
void fill_fr05_zeros(const hostile_case *c, int64_t row, float *x); // -0, element 7 +0

void expect_fr01(const hostile_case *c, int64_t row, hostile_expected *e);
void expect_fr03_last(const hostile_case *c, int64_t row, hostile_expected *e);
void expect_fr03_single(const hostile_case *c, int64_t row, hostile_expected *e);
void expect_fr04(const hostile_case *c, int64_t row, hostile_expected *e);
void expect_fr05(const hostile_case *c, int64_t row, hostile_expected *e);
void expect_fr05_zeros(const hostile_case *c, int64_t row, hostile_expected *e);

#endif
