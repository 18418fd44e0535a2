// SPDX-License-Identifier: Apache-2.0
// The tensor maps among a kernel's parameters, as TMA's instructions take them. Used by the plans wide and multicast.
#pragma once

#include "../common/tma.cuh"
#include "args_mapped.h"

static_assert(sizeof(router_map) == sizeof(TensorMap), "router_map: a tensor map");

QN_DEVICE const TensorMap *map_of(const router_map &map)
{
    return reinterpret_cast<const TensorMap *>(&map);
}
