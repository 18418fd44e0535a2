// SPDX-License-Identifier: Apache-2.0
// CTAs an SM by registers, as the driver's occupancy functions count (cuda_occupancy.h of the toolkit): a warp takes
// registers in steps of 256 from the one of the SM's four partitions that it runs in, and warps of a CTA go to partitions one
// by one. So a CTA of one warp takes what one warp needs. Only whether a CTA can be launched at all is decided as if it
// had a multiple of four warps.
#include "cuda/residency.h"

enum { WARP = 32, PARTITIONS = 4, STEP = 256, MOST_REGISTERS = 255 };

static int up(int value, int step)
{
    return (value + step - 1) / step * step;
}

int qn_ctas_by_registers(const qn_arch *arch, int threads, int registers)
{
    const int warps = up(threads, WARP) / WARP, of_warp = up(registers * WARP, STEP);
    if (registers > MOST_REGISTERS || up(warps, PARTITIONS) * of_warp > arch->registers_sm) return 0;
    return arch->registers_sm / PARTITIONS / of_warp * PARTITIONS / warps;
}

int qn_registers_for_ctas(const qn_arch *arch, int threads, int ctas)
{
    int registers = up(MOST_REGISTERS, STEP / WARP);
    while (registers > 0 &&
           qn_ctas_by_registers(arch, threads, registers < MOST_REGISTERS ? registers : MOST_REGISTERS) < ctas)
        registers -= STEP / WARP;
    return registers < MOST_REGISTERS ? registers : MOST_REGISTERS;
}
