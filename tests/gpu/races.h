/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Races, found by what orders accesses and not by what came first this time: with HEARTH_GPU_RACES=1 every access to
 * shared and global memory is compared with the earlier ones to the same bytes, and ends the launch where one of the
 * two writes and nothing orders them. HEARTH_GPU_RACES=2 tells all on stderr instead, each pair of lines once.
 *
 * What orders: a lane's own instructions; bar.warp.sync; bar.sync and its like; barrier.cluster, as far as its fences
 * go; mbarrier arrive and wait; cp.async, bulk copies and wgmma until somebody waited for them; atomics with fences;
 * griddepcontrol.wait, between kernels of which one began early. Instructions that lanes merely execute together
 * (shfl.sync, mma.sync) order no memory, and what the generic proxy wrote needs a fence.proxy.async before a bulk copy
 * or wgmma touches it, as an mbarrier.init needs one before a bulk copy completes there. Scopes are not looked at.
 *
 * Two writes of the same bytes with the same value are let pass (=2 tells them): memory is the same whichever comes
 * last, and kernels have all warps write what each of them has computed where that saves a branch or a barrier. Who
 * reads it must be behind both of them all the same.
 *
 * Four accesses are remembered per word, so of many readers some are forgotten: a report is always two accesses without
 * order, but silence proves nothing.
 *
 *   races.c        clusters, barriers of run.c, which instructions are looked at
 *   race_access.c  loads, stores, atomics, matrices: what they touch
 *   race_async.c   barriers in shared memory, copies
 *   race_hand.c    how knowledge is handed over
 *   race_clock.c   clocks
 *   race_cell.c    what is remembered of memory, and the comparison
 *   race_report.c  launches, and the sentence
 */
#ifndef TESTS_GPU_RACES_H
#define TESTS_GPU_RACES_H

#include "gpu/run.h"

/* Where it is switched on: the kernel's instructions that touch memory or order accesses go through here. */
void races_wrap(gpu_kernel *k);

/* Whether races are only told. */
bool races_told(void);

/* The rest is called where gpu_cluster.races is there, or the kernel has `races`. */
void races_launch(gpu_grid *g);
void races_end(gpu_grid *g);
int  races_open(gpu_cluster *c);
void races_begin(gpu_cluster *c, unsigned number);
void races_close(gpu_cluster *c);

/* Lanes arrive at a barrier of the block or the cluster; they go on behind it, or behind the kernel in front. */
void races_arrive(warp_state *s, const insn *i, uint32_t m, uint32_t id);
void races_pass(warp_state *s, const insn *i, const group *g);

/* wgmma reads that from its block's shared memory. */
void races_wgmma(warp_state *s, const insn *i, uint32_t offset, uint32_t bytes);

#endif
