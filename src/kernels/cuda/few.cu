/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product for 1..64 activation rows: limited by reading the weights, so everything serves that.
 *
 * A block has 16 warps and stays for many row tiles. A warp owns one slice of K: it streams the slice's packed tiles
 * through a ring of its own in shared memory (copies under way while it computes, across row tiles too), unpacks them
 * in registers and multiplies by mma.m16n8k16 with the weights as the 16-row side. The activations of the block's
 * slices are loaded once and stay in shared memory; where they would take too much of it, the blocks of a cluster share
 * a row tile and each holds the activations of its slices alone. At the end of a row tile the slices meet in shared
 * memory (of all blocks of the cluster) and are added in order.
 *
 * Weights do not depend on earlier kernels: with an early start the first ones are under way before the kernel in front
 * has ended. Columns of a tile beyond the last activation row compute a copy of that row and are not written.
 *
 * One row waits behind all copies that were asked for before it. Paced, the last warp fills the rings of all while the
 * others wait for the kernel in front, with so few bytes under way at a time that nobody waits for them.
 */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/unpack.cuh"

#define WARPS 16
#define MAX_STAGES 5
#ifndef FEW_PACE
#define FEW_PACE 0 /* of plans without a pace; 0: none */
#endif

struct few_args {
    const uint8_t *w, *x;
    const float   *scale;
    int            rows, rows_pad, n, n_pad;
    int            n_kt, slice_kt; /* column tiles: of the matrix, of a slice */
    int            log_slices, log_cluster, stages;
    int            early; /* places of the ring that are filled before the activations are there */
    int            pace;  /* places of all rings under way at a time while one row is waited for; 0: few_feed does not run */
    int            x_row; /* number of the first activation row in its image, for the swizzle */
    int            far;   /* activations stay in memory: shared memory has no room for them (before Hopper) */
    int            up;   /* not 0: row tile i of the first matrix goes with row tile i + up, its gate and what it gates */
    cuda_act       act;
    const float   *row; /* not NULL: the one activation row in f32, which every block brings to 16 bits itself */
    cuda_row_norm  norm;
    int            cols;
    /* Bytes from row tile to row tile of the first matrix, to a warp's next one, to the second one of two, and from column
     * tile to column tile. */
    int64_t     row_step, tile_step, second_step, kt_step;
    product_end end;
    cuda_ahead  ahead;
};

/* Hopper's blocks always have room for them, if they share them out in a cluster. */
#ifdef CUDA_HOPPER
__device__ static inline bool is_far(const few_args &) { return false; }
#else
__device__ static inline bool is_far(const few_args &a) { return a.far; }
#endif

/* Two small tiles, one behind the other, as one: half as many copies and turns of a ring. */
template <class T> struct few_twice : unpack_plain {
    enum { COLS = 2 * T::COLS, BYTES = 2 * T::BYTES, BF16 = T::BF16 };
    __device__ static inline void fragments(uint32_t a[4][4], const uint8_t *tile, const uint8_t *scratch, int block,
                                            int lane) {
        constexpr int BLOCKS = T::COLS / CUDA_BLOCK_COLS;
        T::fragments(a, tile + block / BLOCKS * T::BYTES, scratch, block % BLOCKS, lane);
    }
};

/*
 * What a warp still has to load: its slice of its row tiles, one column tile after the other, into a ring. Hopper
 * copies a tile in one piece and counts its bytes at a barrier per place; older chips copy 16 bytes per lane, in
 * groups.
 */
template <class T, int MT> struct few_stream {
    const few_args &a;
    const uint8_t  *row, *from; /* the slice's first and next column tile; before Hopper this lane's 16 bytes of it */
    uint32_t        ring, bars;
    int             left, kt, n_kt; /* row tiles (of MT * 16 rows) left, column tile */
    int             lane;

    __device__ inline void init(uint32_t at, uint32_t barriers, int tile, int step, int n_tiles, int kt0, int n) {
        lane = (int)threadIdx.x % 32;
        row = a.w + tile * (a.up ? a.row_step : a.row_step * MT) + kt0 * a.kt_step;
        ring = at, bars = barriers;
        left = n > 0 && tile < n_tiles ? (n_tiles - tile + step - 1) / step : 0;
        kt = 0, n_kt = n;
#ifndef CUDA_HOPPER
        ring += lane * 16, row += lane * 16;
#endif
        from = row;
    }

    __device__ inline void init_barriers() const {
#ifdef CUDA_HOPPER
        if (lane < a.stages) barrier_init(bars + lane * 8, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); /* for copies: no instruction comes of it */
        __syncwarp();
#endif
    }

    __device__ inline void skip() {
        if (!left) return;
        from += a.kt_step;
        if (++kt == n_kt) row += a.tile_step, from = row, kt = 0, left--;
    }

#ifdef CUDA_HOPPER
    /* The next copy, by one lane; there is one. */
    __device__ inline void put(int slot) const {
        const uint32_t to = ring + slot * (MT * T::BYTES);
        barrier_expect(bars + slot * 8, MT * T::BYTES);
        bulk_copy(to, from, T::BYTES, bars + slot * 8);
        if (MT > 1) bulk_copy(to + T::BYTES, from + a.second_step, T::BYTES, bars + slot * 8);
    }
#endif

    /* Starts the next copy, if there is one. Older chips: always closes a group, so that groups can be counted. */
    __device__ inline void next(int slot) {
        if (left) {
#ifdef CUDA_HOPPER
            if (lane == 0) put(slot);
#else
            const uint32_t to = ring + slot * (MT * T::BYTES);
            for (int m = 0; m < MT; m++) {
#pragma unroll
                for (int o = 0; o < T::BYTES; o += 512) {
                    if (o + 512 <= T::BYTES || lane * 16 < T::BYTES % 512)
                        copy16(to + m * T::BYTES + o, from + m * a.second_step + o);
                }
            }
#endif
            skip();
        }
#ifndef CUDA_HOPPER
        copy_commit();
#endif
    }

    __device__ inline void wait(int slot, uint32_t parity, int stages) const {
#ifdef CUDA_HOPPER
        (void)stages;
        barrier_wait(bars + slot * 8, parity);
#else
        (void)slot, (void)parity;
        copy_wait_n(stages - 1);
        __syncwarp();
#endif
    }
};

/* What the warps of a paced block tell each other. */
struct few_paced {
    uint64_t free;        /* a barrier: the kernel in front has ended */
    int      fed[WARPS];  /* places of each ring that are filled or under way */
};

#ifdef CUDA_HOPPER
/* All warps have initialized the barriers of their rings when the last one goes on, which alone waits for that. */
__device__ static inline void few_barriers_are_there(bool last) {
    if (last)
        asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
    else
        asm volatile("bar.arrive 1, %0;" ::"n"(WARPS * 32) : "memory");
}

/*
 * Lane l goes on filling the ring of warp l, whose stream is `in`. A place is asked for when the one a.pace places in front
 * of it has arrived; nobody takes anything from the rings before the kernel in front has ended, so that phase 0 is the one
 * that a place is in.
 */
template <class T, int MT>
__device__ static inline void few_feed(few_stream<T, MT> &in, uint32_t bars, few_paced &m) {
    const few_args &a = in.a;
    const int       places = in.lane < WARPS ? min(a.stages, in.left * in.n_kt) : 0;
    int             place = min(a.early, places);
    for (int i = 0; i < place; i++) in.skip();
    while (__any_sync(0xffffffffu, place < places) && !barrier_done(smem_at(&m.free), 0)) {
        const int front = place * WARPS + in.lane - a.pace, whose = front & (WARPS - 1), slot = front / WARPS;
        const int theirs = __shfl_sync(0xffffffffu, places, whose);
        if (place < places &&
            (front < 0 || slot >= theirs || barrier_done(bars + (whose * MAX_STAGES + slot) * 8, 0))) {
            in.put(place++);
            in.skip();
        }
    }
    if (in.lane < WARPS) m.fed[in.lane] = place;
}
#endif

/* Fragments of 16 * MT weight rows and 64 columns times the ONE row that the block made: x has the eight words of each of
 * the four lanes with the first column. The other columns compute the same and are not read. */
template <bool BF16, int MT>
__device__ static inline void few_times_one(float acc[MT][1][4], const uint32_t fa[MT][4][4], const uint8_t *x,
                                            int lane) {
    const uint4 p = load_lane16(x + lane % 4 * 32), q = load_lane16(x + lane % 4 * 32 + 16);
#pragma unroll
    for (int m = 0; m < MT; m++) {
        mma16<BF16>(acc[m][0], fa[m][0], p.x, p.y);
        mma16<BF16>(acc[m][0], fa[m][1], p.z, p.w);
        mma16<BF16>(acc[m][0], fa[m][2], q.x, q.y);
        mma16<BF16>(acc[m][0], fa[m][3], q.z, q.w);
    }
}

/* The same for n rows of an image, NT * 8 at most. */
template <bool BF16, int NT, int MT>
__device__ static inline void few_times_rows(float acc[MT][NT][4], const uint32_t fa[MT][4][4], uint32_t x, int n,
                                             int x_row, int lane) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            const int row = min(nt * 8 + lane % 8, n - 1);
            uint32_t  fb[4];
            load_matrices(fb, x + row * CUDA_ROW_BYTES + ((4 * h + lane / 8) ^ ((row + x_row) & 7)) * 16);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma16<BF16>(acc[m][nt], fa[m][2 * h], fb[0], fb[1]);
                mma16<BF16>(acc[m][nt], fa[m][2 * h + 1], fb[2], fb[3]);
            }
        }
    }
}

#ifndef CUDA_HOPPER
/* The same from the image in memory; x is that of the first row. */
template <bool BF16, int NT, int MT>
__device__ static inline void few_times_far(float acc[MT][NT][4], const uint32_t fa[MT][4][4], const uint8_t *x, int n,
                                            int x_row, int lane) {
#pragma unroll
    for (int nt = 0; nt < NT; nt++) {
        const int      row = min(nt * 8 + lane / 4, n - 1);
        const uint8_t *from = x + row * CUDA_ROW_BYTES + lane % 4 * 4;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint32_t b[2];
#pragma unroll
            for (int i = 0; i < 2; i++)
                b[i] = *reinterpret_cast<const uint32_t *>(from + ((2 * k + i) ^ ((row + x_row) & 7)) * 16);
#pragma unroll
            for (int m = 0; m < MT; m++) mma16<BF16>(acc[m][nt], fa[m][k], b[0], b[1]);
        }
    }
}
#endif

/* Multiplies one column tile: 16 * MT weight rows, COLS columns, NT * 8 activation rows. x_step: from 64 columns of x to the
 * next ones. */
template <class T, int NT, int MT, bool ONE>
__device__ static inline void few_multiply(float acc[MT][NT][4], const uint8_t *tile, uint8_t *scratch,
                                           const uint8_t *x, int x_step, const few_args &a, int lane) {
    if (T::SCRATCH) {
#pragma unroll
        for (int m = 0; m < MT; m++) T::prepare(tile + m * T::BYTES, scratch + m * T::SCRATCH, lane);
        __syncwarp();
    }
#pragma unroll
    for (int b = 0; b < T::COLS / CUDA_BLOCK_COLS; b++) {
        uint32_t fa[MT][4][4];
#pragma unroll
        for (int m = 0; m < MT; m++) T::fragments(fa[m], tile + m * T::BYTES, scratch + m * T::SCRATCH, b, lane);
        if constexpr (ONE) {
            few_times_one<T::BF16, MT>(acc, fa, x + b * CUDA_ROW_BYTES, lane);
        } else {
#ifndef CUDA_HOPPER
            if (is_far(a)) {
                few_times_far<T::BF16, NT, MT>(acc, fa, x + (int64_t)b * x_step, a.n, a.x_row, lane);
                continue;
            }
#endif
            few_times_rows<T::BF16, NT, MT>(acc, fa, smem_at(x) + b * x_step, a.n, a.x_row, lane);
        }
    }
}

/*
 * Where the slices of a row tile meet. Each warp leaves its sums in one of two buffers and says so; in the middle
 * of its next row tile, when the others have most likely done the
 * same, it fetches the slices of its share of the values, and adds them after that tile. A warp that writes a buffer
 * again has seen all others' word of one row tile ago, which they gave after their last look at that buffer.
 */
template <int MT, int NT> struct few_meeting {
    const few_args &a;
    const float    *scale;
    uint32_t        red, bar;     /* this group's part of the first buffer; its barrier */
    int             warp_bytes;   /* of a warp's sums */
    int             buffer_bytes; /* of those of all warps of the block */
    int             share;        /* this warp's number in its group, all blocks of the cluster counted */
    int             lane, log_spc;
    int             turn, tile;
    int             place; /* of the value that was fetched */
    float           part[CUDA_SLICES_MAX];

    __device__ inline void load() {
        const uint32_t at = red + ((turn - 1) & 1) * buffer_bytes + place * 4;
        if (a.log_cluster) {
#pragma unroll
            for (int s = 0; s < CUDA_SLICES_MAX; s++) {
                if (s < 1 << a.log_slices)
                    part[s] = cluster_load(at + (s & ((1 << log_spc) - 1)) * warp_bytes, (uint32_t)s >> log_spc);
            }
            return;
        }
#pragma unroll
        for (int s = 0; s < CUDA_SLICES_MAX; s++) {
            if (s < 1 << a.log_slices) part[s] = shared_load(at + s * warp_bytes);
        }
    }

    __device__ inline void store() {
        const int in_tile = place % CUDA_TILE_ROWS, m = place / CUDA_TILE_ROWS % MT,
                  col = place / (CUDA_TILE_ROWS * MT);
        const int row = (a.up ? tile + m * a.up : tile * MT + m) * CUDA_TILE_ROWS + in_tile;
        float     sum = 0;
#pragma unroll
        for (int s = 0; s < CUDA_SLICES_MAX; s++) {
            if (s < 1 << a.log_slices) sum += part[s];
        }
        if (row >= a.rows) return;
        float *out = a.end.at(a.x_row + col, row);
        float  v = a.end.value(sum, scale[col], row, out);
        if (MT == 2 && a.up) { /* lanes 16.. have what the gates of lanes 0.. open for; all lanes are here */
            const float other = __shfl_xor_sync(0xffffffffu, v, 16);
            if (m == 0) v = act_of(a.act, v) * other;
        }
        *out = v;
    }

    __device__ inline void fetch() {
        if (turn == 0) return;
        if (a.log_cluster)
            cluster_wait();
        else
            barrier_wait(bar, (turn - 1) & 1);
        /* Another warp begins each time: one row's values keep only one of them busy. */
        place = ((share + turn) & ((1 << a.log_slices) - 1)) * 32 + lane;
        if (place < a.n * (MT * CUDA_TILE_ROWS)) load();
    }

    __device__ inline void finish() {
        if (turn == 0) return;
        while (place < a.n * (MT * CUDA_TILE_ROWS)) {
            store();
            place += 32 << a.log_slices;
            if (place < a.n * (MT * CUDA_TILE_ROWS)) load();
        }
    }

    /* [activation row][MT][16 weight rows] of each warp. */
    __device__ inline void leave(const float acc[MT][NT][4], uint8_t *mine, int this_tile) {
        float *to = reinterpret_cast<float *>(mine + (turn & 1) * buffer_bytes) + lane / 4;
#pragma unroll
        for (int i = 0; i < MT * NT * 4; i++) {
            const int m = i / 4 / NT, col = i / 4 % NT * 8 + lane % 4 * 2 + i % 2;
            if (col < a.n) to[(col * MT + m) * CUDA_TILE_ROWS + i / 2 % 2 * 8] = acc[m][i / 4 % NT][i % 4];
        }
        __syncwarp();
        if (a.log_cluster)
            cluster_arrive();
        else
            barrier_arrive(bar);
        tile = this_tile;
        turn++;
    }
};

/* The activations of the block's slices: [block of 64 columns][n rows] of the image, blocks b0.. to shared memory. */
__device__ static inline void few_load_rows(const few_args &a, uint32_t x, float *scale, int b0, int n_blocks) {
    for (int i = (int)threadIdx.x; i < n_blocks * a.n * 8 && !is_far(a); i += WARPS * 32) {
        const int row = i / 8 % a.n, block = i / 8 / a.n;
        copy16(x + i * 16, a.x + ((int64_t)(b0 + block) * a.n_pad + row) * CUDA_ROW_BYTES + i % 8 * 16);
    }
    copy_commit();
    if ((int)threadIdx.x < a.n) scale[threadIdx.x] = a.scale[threadIdx.x];
}

/* A thread's part of a row of f32, as few_make_row has it. */
template <int MOST> struct few_part {
    static constexpr int THREADS = WARPS * 32, CHUNKS = MOST / 8 / THREADS;
    float                v[CHUNKS][8];

    __device__ static inline int  at(int c) { return (c * THREADS + (int)threadIdx.x) * 8; }
    __device__ static inline bool any(int c, int cols) { return c * THREADS * 8 < cols; } /* in the whole block */
    __device__ inline void        load(const float *row, int cols, float rest) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (!any(c, cols)) continue;
            const bool   in = row && at(c) < cols;
            const float4 p = in ? *reinterpret_cast<const float4 *>(row + at(c)) : make_float4(rest, rest, rest, rest),
                         q = in ? *reinterpret_cast<const float4 *>(row + at(c) + 4)
                                : make_float4(rest, rest, rest, rest);
            v[c][0] = p.x, v[c][1] = p.y, v[c][2] = p.z, v[c][3] = p.w;
            v[c][4] = q.x, v[c][5] = q.y, v[c][6] = q.z, v[c][7] = q.w;
        }
    }
    __device__ inline void zero(int c) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[c][i] = 0;
    }
};

/*
 * The one row in f32: normed where asked for, with the operations of norm_regs_kernel (norm.cu) by as many threads, then
 * its 16 bits in the order in which few_multiply reads them.
 */
template <bool NORM, int MOST, class More>
__device__ static inline void few_make_row(const few_args &a, const few_part<CUDA_NORM_FUSED> &w, uint8_t *x,
                                           float *scale, int b0, int b1, More more) {
    using row_part = few_part<MOST>;
    constexpr int       THREADS = row_part::THREADS, CHUNKS = row_part::CHUNKS;
    __shared__ float    room[WARPS];
    __shared__ uint32_t tops[WARPS];
    const int           tid = (int)threadIdx.x;
    row_part            row;
    row.load(a.row, a.cols, 0);
    if (!a.pace) more(); /* behind the row: it would wait for them */
    auto &v = row.v;
    if constexpr (NORM) {
        float part = 0, sum = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (!row_part::any(c, a.cols)) continue;
#pragma unroll
            for (int i = 0; i < 8; i++) part = fmaf(v[c][i], v[c][i], part);
        }
        part = warp_sum(part); /* then as block_sum, whose room nobody has read yet */
        if (tid % 32 == 0) room[tid / 32] = part;
        __syncthreads();
        if (a.pace) more();
#pragma unroll
        for (int i = 0; i < WARPS; i++) sum += room[i];
        const float by = 1.0f / sqrtf(sum / (float)a.cols + a.norm.eps);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (!row_part::any(c, a.cols)) continue;
            const int at = row_part::at(c);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[c][i] = v[c][i] * by * w.v[c][i];
                if (blockIdx.x == 0 && at < a.cols) a.norm.out[at + i] = v[c][i];
            }
        }
    }
    uint32_t top = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (!row_part::any(c, a.cols)) continue;
#pragma unroll
        for (int i = 0; i < 8; i++) top = max(top, __float_as_uint(v[c][i]) & 0x7fffffffu);
    }
    top = __reduce_max_sync(0xffffffffu, top);
    if (tid % 32 == 0) tops[tid / 32] = top;
    __syncthreads();
    if (!NORM && a.pace) more();
    for (int i = 0; i < THREADS / 32; i++) top = max(top, tops[i]);
    const int   e = cuda_row_exponent(top);
    const float factor = __uint_as_float((uint32_t)(127 - e) << 23);
    if (tid == 0) scale[0] = __uint_as_float((uint32_t)(127 + e) << 23);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int chunk = c * THREADS + tid;
        if (!row_part::any(c, b1 * CUDA_BLOCK_COLS)) continue;
        if (!row_part::any(c, a.cols)) row.zero(c);
        if (chunk < b0 * 8 || chunk >= b1 * 8) continue;
        uint8_t *to = x + (chunk / 8 - b0) * CUDA_ROW_BYTES + chunk % 8 * 4;
#pragma unroll
        for (int i = 0; i < 4; i++)
            *reinterpret_cast<__half2 *>(to + i * 32) =
                __floats2half2_rn(__fmul_rn(v[c][2 * i], factor), __fmul_rn(v[c][2 * i + 1], factor));
    }
}

/* Registers of one row's blocks leave room for one of attn_one.cu beside them: it starts while the product in front ends,
 * and the one behind it has its weights by then. */
template <class T, int NT, int MT, bool ONE>
static __global__ __launch_bounds__(ONE && MT == 1 ? 640 : WARPS * 32, 1) void few_kernel(const few_args a) {
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ float                         scale[CUDA_FEW];
    __shared__ __align__(8) uint64_t bars[WARPS], ring_bars[WARPS][MAX_STAGES];
    __shared__ few_paced             paced;
    using meeting = few_meeting<MT, NT>;
    constexpr int BLOCKS = T::COLS / CUDA_BLOCK_COLS;
    const int     lane = (int)threadIdx.x % 32, log_spc = a.log_slices - a.log_cluster;
    const int     warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0); /* so that it is known to be the warp's */
    const int     rank = a.log_cluster ? (int)cluster_rank() : 0;
    const int     groups = WARPS >> log_spc, group = warp >> log_spc, slice = (rank << log_spc) + warp % (1 << log_spc);
    const int     team = (int)blockIdx.x >> a.log_cluster, n_teams = (int)gridDim.x >> a.log_cluster;
    const int     n_tiles = a.up ? a.up : (a.rows + MT * CUDA_TILE_ROWS - 1) / (MT * CUDA_TILE_ROWS);
    const int     kt0 = slice * a.slice_kt, n_kt = max(0, min(a.slice_kt, a.n_kt - kt0));
    const int     first_tile = team + n_teams * group, step = n_teams * groups;
    /* Shared memory: rings, buffers of the meeting, scratch, activations. */
    const int      ring_bytes = a.stages * MT * T::BYTES;
    const uint8_t *ring = smem + warp * ring_bytes;
    uint8_t       *red = smem + WARPS * ring_bytes;
    const int      warp_bytes = a.n * MT * CUDA_TILE_ROWS * 4, buffer_bytes = WARPS * warp_bytes;
    uint8_t       *scratch = red + 2 * buffer_bytes + warp * MT * T::SCRATCH;
    uint8_t       *x = red + 2 * buffer_bytes + WARPS * MT * T::SCRATCH;

    launch_next();
    few_stream<T, MT> in = { a };
    in.init(smem_at(ring), smem_at(ring_bars[warp]), first_tile, step, n_tiles, kt0, n_kt);
    in.init_barriers();
    for (int i = 0; i < a.early; i++) in.next(i);
    T::begin();
    const auto rest = [&] {
        int from = a.early;
        if (ONE && a.pace)
            for (const int fed = paced.fed[warp]; from < fed; from++) in.skip();
        for (int i = from; i < a.stages; i++) in.next(i);
    };
#ifdef CUDA_HOPPER
    if (a.ahead.bytes && blockIdx.x == 0 && threadIdx.x == 0) bulk_prefetch(a.ahead.from, a.ahead.bytes);
#endif
    if (lane == 0) barrier_init(smem_at(&bars[warp]), 32 << log_spc);
    const bool                normed = ONE && a.norm.out;
    few_part<CUDA_NORM_FUSED> norm_w;
    if (normed) norm_w.load(a.norm.w, a.cols, 1); /* as the weights, these are never written */
#ifdef CUDA_HOPPER
    if (ONE && a.pace) {
        if (threadIdx.x == 0) barrier_init(smem_at(&paced.free), 1);
        few_barriers_are_there(warp == WARPS - 1);
        if (warp == WARPS - 1) {
            const int         whose = lane % WARPS, g = whose >> log_spc, s = whose % (1 << log_spc), k0 = s * a.slice_kt;
            few_stream<T, MT> all = { a };
            all.init(smem_at(smem + whose * ring_bytes), smem_at(ring_bars[whose]), team + n_teams * g, step, n_tiles, k0,
                     max(0, min(a.slice_kt, a.n_kt - k0)));
            few_feed(all, smem_at(ring_bars), paced);
        }
    }
#endif
    launch_wait();
    if (ONE && a.pace && threadIdx.x == 0) barrier_arrive(smem_at(&paced.free));
    const int b0 = (rank << log_spc) * a.slice_kt * BLOCKS,
              b1 = min(a.n_kt * BLOCKS, b0 + (a.slice_kt * BLOCKS << log_spc));
    if (normed)
        few_make_row<true, CUDA_NORM_FUSED>(a, norm_w, x, scale, b0, b1, rest);
    else if (ONE)
        few_make_row<false, CUDA_ROW_FUSED>(a, norm_w, x, scale, b0, b1, rest);
    else
        few_load_rows(a, smem_at(x), scale, b0, max(0, b1 - b0));
    copy_wait<0>();
    __syncthreads();

    /* The blocks of a cluster meet as a whole: every group goes as many rounds as the first. */
    const int      end = a.log_cluster ? n_tiles + n_teams * group : n_tiles;
    const int      x_step = (is_far(a) ? a.n_pad : a.n) * CUDA_ROW_BYTES;
    const uint8_t *x_slice = is_far(a) ? a.x + (int64_t)kt0 * BLOCKS * x_step : x + (kt0 * BLOCKS - b0) * x_step;
    meeting        meet = { a,
                            scale,
                            smem_at(red) + (group << log_spc) * warp_bytes,
                            smem_at(&bars[group]),
                            warp_bytes,
                            buffer_bytes,
                            slice,
                            lane,
                            log_spc,
                            0,
                            0,
                            0,
                            {} };
    int            slot = 0;
    uint32_t       parity = 0;
    for (int tile = first_tile; tile < end; tile += step) {
        float          acc[MT][NT][4] = {};
        const uint8_t *xk = x_slice;
        const int      last = tile < n_tiles ? n_kt : 0;
        for (int kt = 0; kt < last; kt++, xk += BLOCKS * x_step) {
            if (kt == last / 2) meet.fetch();
            in.wait(slot, parity, a.stages);
            few_multiply<T, NT, MT, ONE>(acc, ring + slot * (MT * T::BYTES), scratch, xk, x_step, a, lane);
            __syncwarp();
            in.next(slot);
            if (++slot == a.stages) slot = 0, parity ^= 1;
        }
        if (last == 0) meet.fetch();
        meet.finish();
        meet.leave(acc, red + warp * warp_bytes, tile);
    }
    meet.fetch();
    meet.finish();
    if (a.log_cluster) cluster_sync(false); /* neighbours may still read */
}

/* ---- the launching side ---- */

struct few_choice {
    int    n, mt, cluster, stages, least; /* least: stages that will do */
    bool   gated;                         /* two row tiles: a gate and what it gates */
    bool   far;                           /* activations are not in shared memory */
    size_t smem, beside;
};

/* Shared memory of one block; stages 0: without the ring. */
static size_t few_smem(const product_shape &p, const few_choice &c, int cluster, int stages) {
    return (size_t)WARPS * c.mt * (2 * c.n * CUDA_TILE_ROWS * 4 + p.scratch_bytes + stages * p.tile_bytes) +
           (c.far ? 0 : (size_t)c.n * (p.slices / cluster) * p.slice_cols * 2);
}

/* Places of the ring that are filled before the activations are there. Whatever is asked for before one row makes it come
 * later: a single place where unpacking is the limit, two where reading is or where the row itself takes its time. */
static int few_early(const cuda_product_args *a, const product_shape &p, const few_choice &c, int pace) {
    if (pace) return pace / WARPS < c.stages ? pace / WARPS : c.stages; /* few_feed goes on */
    const int places = p.tile_bytes < 16 * p.tile_cols && p.cols <= CUDA_NORM_FUSED ? 1 : 2;
    return a->row && places < c.stages ? places : c.stages;
}

/* Places under way at a time before one row is there; 0: few_early. */
static int few_pace(const cuda_device *d, const cuda_product_args *a, const product_shape &p, const few_choice &c) {
    const int64_t kib = a->plan.pace ? a->plan.pace : FEW_PACE;
    if (kib <= 0 || !a->row || !a->early || d->code < 90 || c.cluster > 1) return 0;
    const int64_t places = kib * 1024 / (c.mt * p.tile_bytes);
    return places < 1 ? 1 : places > WARPS * MAX_STAGES ? WARPS * MAX_STAGES : (int)places;
}

/* Whether all tiles of a row tile have a neighbour, and two of them are no more than one of other types. */
static bool few_can_twice(const product_shape &p) {
    return p.tile_cols == 128 && p.tile_bytes <= 1152 && (p.cols + 127) / 128 % 2 == 0;
}

/* Bytes that must be under way on a multiprocessor for memory to run at full speed. */
#define FEW_UNDER_WAY (64 * 1024)

/*
 * The plan for n rows: the smallest cluster whose activations leave room for enough copies under way, else the one with
 * the most room; false where no block holds the activations. No more places in the ring than a warp has tiles.
 */
static bool few_choose(const cuda_device *d, const product_shape &p, const cuda_few_plan *want, few_choice *c) {
    const size_t  room = d->smem_bytes - 2048 - p.shared_bytes - c->beside, stage = (size_t)WARPS * c->mt * p.tile_bytes;
    const int64_t groups = WARPS * (int64_t)d->sms / p.slices,
                  tiles = (p.rows + c->mt * CUDA_TILE_ROWS - 1) / (c->mt * CUDA_TILE_ROWS);
    const int64_t useful = (tiles + groups - 1) / groups * (p.slice_cols / p.tile_cols);
    int           best = 0;
    for (int cluster = want->cluster ? want->cluster : 1;
         cluster <= p.slices && (cluster == 1 || d->clusters[log2_of(cluster)]); cluster *= 2) {
        const size_t fixed = few_smem(p, *c, cluster, 0);
        int          stages = fixed < room ? (int)((room - fixed) / stage) : 0;
        if (stages > MAX_STAGES) stages = MAX_STAGES;
        if (want->stages && want->stages < stages) stages = want->stages;
        if (stages > useful) stages = useful < 2 ? 2 : (int)useful;
        if (stages > best && stages >= c->least) best = stages, c->cluster = cluster;
        if (want->cluster || stages * stage >= FEW_UNDER_WAY || (stages >= useful && stages >= c->least)) break;
    }
    c->stages = best;
    if (best < c->least) return false;
    c->smem = few_smem(p, *c, c->cluster, best);
    return true;
}

/*
 * Row tiles of 32 where there are enough of them for all warps and they leave room for copies: fewer meetings, and
 * activations read once for two tiles.
 */
static bool few_choose_tile(const cuda_device *d, const product_shape &p, const cuda_few_plan *want, few_choice *c) {
    const bool tiles_of_32 = p.tile_bytes < 16 * p.tile_cols; /* less than 8 bits: unpacking is the limit */
    c->mt = 2;
    const bool pairs = p.rows_pad % (2 * CUDA_TILE_ROWS) == 0;
    const bool tall = !pairs       ? false
                      : want->tile ? want->tile == 2
                                   : tiles_of_32 && p.rows * p.slices >= (int64_t)d->sms * WARPS * 32;
    if (tall && few_choose(d, p, want, c) && (c->cluster == 1 || want->tile)) return true;
    c->mt = 1;
    return !c->gated && few_choose(d, p, want, c);
}

template <class T, int NT, int MT, bool ONE>
static int few_start(const cuda_device *d, const cuda_product_args *a, const few_choice &c, const few_args &k,
                     cuda_stream s, err *e) {
    const int     groups = WARPS * c.cluster >> k.log_slices, tile = MT * CUDA_TILE_ROWS;
    const int64_t tiles = (k.rows + tile - 1) / tile, teams = c.cluster == 1 ? tiles : (tiles + groups - 1) / groups;
    const int64_t most = c.cluster == 1 ? d->sms : d->clusters[log2_of(c.cluster)];
    few_args      own = k;
    cuda_shape shape = { (unsigned)((teams < most ? teams : most) * c.cluster), WARPS * 32, (unsigned)c.cluster, c.smem,
                         a->early && d->code >= 90 };
    own.tile_step = k.row_step * (k.up ? 1 : MT) * (shape.blocks / c.cluster) * groups;
    own.second_step = k.row_step * (k.up ? k.up : 1);
    return cuda_launch(few_kernel<T, NT, MT, ONE>, shape, s, e, own);
}

template <class T>
static int few_start_rows(const cuda_device *d, const cuda_product_args *a, const few_choice &c, const few_args &k,
                          cuda_stream s, err *e) {
    if (a->row)
        return c.mt == 1 ? few_start<T, 1, 1, true>(d, a, c, k, s, e) : few_start<T, 1, 2, true>(d, a, c, k, s, e);
    if constexpr (!T::LEAN) {
        if (c.n <= 8)
            return c.mt == 1 ? few_start<T, 1, 1, false>(d, a, c, k, s, e) : few_start<T, 1, 2, false>(d, a, c, k, s, e);
    }
    return c.mt == 1 ? few_start<T, 2, 1, false>(d, a, c, k, s, e) : few_start<T, 2, 2, false>(d, a, c, k, s, e);
}

/* `twice`: few_can_twice. */
template <class T>
static int few_start_type(const cuda_device *d, const cuda_product_args *a, const few_choice &c, const few_args &k,
                          bool twice, cuda_stream s, err *e) {
    if constexpr (T::COLS == 128 && T::BYTES <= 1152) {
        if (twice) return few_start_rows<few_twice<T>>(d, a, c, k, s, e);
    }
    return few_start_rows<T>(d, a, c, k, s, e);
}

/*
 * How many rows at once, and the rest of the plan. Two places per warp at least, and what the next kernel wants; where a block
 * has 99 KB that is too much for large tiles, and one place without anything beside it does: 16 warps are enough to read
 * while others multiply. Where rows are so long that a block has no room for one of them, they are read where they are.
 */
static bool few_choose_rows(const cuda_device *d, const product_shape &p, const cuda_few_plan *want, size_t beside, int64_t rows,
                            bool gated, few_choice *c) {
    for (int least = 2; least >= 1; least--) {
        *c = few_choice{};
        c->gated = gated;
        c->least = least;
        c->beside = least == 2 && beside + 2048 + p.shared_bytes < d->smem_bytes ? beside : 0;
        for (c->n = rows < CUDA_FEW ? (int)rows : CUDA_FEW; c->n > 0; c->n = c->n > 8 ? 8 : c->n / 2) {
            if (few_choose_tile(d, p, want, c)) return true;
        }
    }
    if (d->code >= 90) return false;
    *c = few_choice{};
    c->gated = gated, c->least = 1, c->far = true;
    c->n = rows < CUDA_FEW ? (int)rows : CUDA_FEW;
    return few_choose_tile(d, p, want, c);
}

/* Two small tiles as one, where they can be. */
static product_shape few_shape(const cuda_weight *w, bool *twice) {
    product_shape p = product_shape_of(w);
    *twice = few_can_twice(p);
    if (*twice) p.tile_cols *= 2, p.tile_bytes *= 2;
    return p;
}

bool product_few_gates(const cuda_device *d, tensor_type type, int64_t cols) {
    const cuda_weight   w = { type, 2 * CUDA_TILE_ROWS, cols, NULL, 0 };
    const cuda_few_plan plan = { 0, 0, 2, 0 };
    bool                twice;
    few_choice          c;
    return few_choose_rows(d, few_shape(&w, &twice), &plan, 0, 1, true, &c);
}

int product_few(const cuda_device *d, const cuda_product_args *a, cuda_stream s, err *e) {
    bool                twice;
    const product_shape p = few_shape(&a->w, &twice);
    const bool          image = a->w.type == TENSOR_F16 || a->w.type == TENSOR_BF16;
    cuda_few_plan       plan = a->plan;
    if (a->glu) plan.tile = 2;
    for (int64_t row = 0; row < a->x.n;) {
        few_choice c;
        if (!few_choose_rows(d, p, &plan, a->beside, a->x.n - row, a->glu, &c))
            return err_set(e, ERR_LIMIT, "CUDA: activations of %lld columns do not fit into shared memory",
                           (long long)p.cols);
        const int pace = few_pace(d, a, p, c);
        few_args  k = { (const uint8_t *)a->w.data,
                       (const uint8_t *)a->x.data + row * CUDA_ROW_BYTES,
                       a->x.scale + row,
                       (int)p.rows,
                       (int)p.rows_pad,
                       c.n,
                       (int)a->x.n_pad,
                       (int)((p.cols + p.tile_cols - 1) / p.tile_cols),
                       (int)(p.slice_cols / p.tile_cols),
                       log2_of(p.slices),
                       log2_of(c.cluster),
                       c.stages,
                       few_early(a, p, c, pace),
                       pace,
                       (int)row,
                       c.far,
                       a->glu ? (int)(a->more[0].first / CUDA_TILE_ROWS) : 0,
                       a->act,
                       a->row,
                       a->norm,
                       (int)p.cols,
                       image ? CUDA_TILE_ROWS * CUDA_ROW_BYTES : (p.cols + p.tile_cols - 1) / p.tile_cols * p.tile_bytes,
                       0,
                       0,
                       image ? p.pitch * CUDA_ROW_BYTES : p.tile_bytes,
                       product_end_of(a),
                       a->ahead };
        int      rc;
        switch (a->w.type) {
#define START(type, T)                                                                                                 \
    case type: rc = few_start_type<T>(d, a, c, k, twice, s, e); break;
            START(TENSOR_F16, unpack_f16)
            START(TENSOR_BF16, unpack_bf16)
            UNPACK_TILED(START)
#undef START
        default: return err_set(e, ERR_UNSUPPORTED, "CUDA: no product with weights of type %d", (int)a->w.type);
        }
        if (rc != 0) return rc;
        row += c.n;
    }
    return 0;
}
