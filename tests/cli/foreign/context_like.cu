// SPDX-License-Identifier: Apache-2.0
// A kernel for several back ends: its words, its types and its constants come from the host that compiles it.
KERNEL void add_forces(GLOBAL mm_ulong* RESTRICT forces, GLOBAL const real4* RESTRICT positions,
                       real4 periodicBoxSize, real4 invPeriodicBoxSize, GLOBAL mixed* RESTRICT energy) {
  LOCAL mixed energies[32];
  real4 center = positions[0];
  for (int i = GLOBAL_ID; i < NUM_ATOMS; i += GLOBAL_SIZE) {
    real4 position = positions[i];
    APPLY_PERIODIC_TO_POS(position)
    APPLY_PERIODIC_TO_POS_WITH_CENTER(position, center)
    real3 delta = make_real3(position.x - center.x, position.y - center.y, position.z - center.z);
    APPLY_PERIODIC_TO_DELTA(delta)
    const real r = SQRT(delta.x * delta.x + delta.y * delta.y + delta.z * delta.z);
    const tileflags mask = BALLOT(r > RECIP(EXP(r)) * M_PI);
    ATOMIC_ADD(&forces[i], static_cast<mm_ulong>(realToFixedPoint(SHFL(r, 0) + mask)));
    energies[LOCAL_ID % 32] = ERFC(r);
  }
  SYNC_WARPS
  energy[GLOBAL_ID] = energies[LOCAL_ID % 32];
}
