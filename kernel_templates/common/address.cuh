// SPDX-License-Identifier: Apache-2.0
// Shared memory as instructions and descriptors name it: 32-bit addresses. Used by the files of the copy and matrix
// instructions; families pass pointers.
#pragma once

#include "types.cuh"

#ifndef QN_MODEL

// cvta.to.shared: the 32-bit address of a place in this CTA's shared memory (in the shared::cta window). All.
QN_DEVICE u32 shared_address(const void *place)
{
    return (u32)__cvta_generic_to_shared(place);
}

// mapa.shared::cluster.u32: the 32-bit address of the same place in the shared memory of CTA `rank` of the cluster.
// sm_90
QN_DEVICE u32 shared_address_in(const void *place, u32 rank)
{
    u32 mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared_address(place)), "r"(rank));
    return mapped;
}

#endif
