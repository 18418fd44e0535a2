// SPDX-License-Identifier: Apache-2.0
// Names of the integer types, and how functions of the device side are declared. Included first by every other file of
// this folder. Nothing here is an instruction: those are in device.cuh.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(i64) == 8, "widths of the integer types");

// Every helper is inlined, but for those whose registers a hot loop must not share (QN_NOINLINE).
#ifndef QN_MODEL
#define QN_DEVICE   __device__ __forceinline__
#define QN_NOINLINE static __device__ __noinline__
#else
#define QN_DEVICE   inline
#define QN_NOINLINE __attribute__((noinline)) static
#endif

// A branch whose code is kept out of the way of the usual path.
#define QN_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

constexpr int kWarp = 32;
constexpr u32 kFullMask = 0xFFFFFFFFu;
