// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/address.cuh: a 32-bit address is the CTA's rank in bits 24 and up, and the place's
// offset.
#pragma once
#include "engine.h"

static inline unsigned shared_address(const void *place, QM_HERE)
{
    return qm::shared_address(place, QM_AT("cvta.to.shared"));
}

static inline unsigned shared_address_in(const void *place, unsigned rank, QM_HERE)
{
    qm::Place at = QM_AT("mapa.shared::cluster");
    return qm::shared_address(qm::map_shared(place, rank, at), at);
}
