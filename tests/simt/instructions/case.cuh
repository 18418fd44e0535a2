// SPDX-License-Identifier: Apache-2.0
// What every kernel of this folder takes: words in, words out, and which of its instructions to carry out. The same
// text runs on the GPU and on the model; the words are those of the .vec file of the same name.
#pragma once

#include "../../../kernel_templates/common/device.cuh"
#include "../../../kernel_templates/common/tma.cuh"

struct Case {
    TensorMap map; // of cases that have one
    const u32 *in;
    u32 *out;
    u32 which;
};

// Registers of this thread: word i of `count` at in[i * THREADS + thread].
template <class T> QN_DEVICE T word_as(u32 word);
template <> QN_DEVICE u32 word_as<u32>(u32 word)
{
    return word;
}
template <> QN_DEVICE i32 word_as<i32>(u32 word)
{
    return (i32)word;
}
template <> QN_DEVICE float word_as<float>(u32 word)
{
    return __uint_as_float(word);
}
QN_DEVICE u32 as_word(u32 value)
{
    return value;
}
QN_DEVICE u32 as_word(i32 value)
{
    return (u32)value;
}
QN_DEVICE u32 as_word(float value)
{
    return __float_as_uint(value);
}

template <class T, int Count> QN_DEVICE void take(T (&r)[Count], const u32 *words)
{
    for (int i = 0; i < Count; i++) r[i] = word_as<T>(words[i * THREADS + (int)threadIdx.x]);
}
template <class T, int Count> QN_DEVICE void give(u32 *words, const T (&r)[Count])
{
    for (int i = 0; i < Count; i++) words[i * THREADS + (int)threadIdx.x] = as_word(r[i]);
}
