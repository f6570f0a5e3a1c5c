/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product for 1..64 activation rows: limited by reading the weights, so everything serves that.
 *
 * A block has eight warps and stays for many row tiles. A warp owns one slice of K: it streams the slice's packed tiles
 * through a ring of its own in shared memory (copies under way while it computes, across row tiles too), unpacks them
 * in registers and multiplies by mma.m16n8k16 with the weights as the 16-row side. The activations of the block's
 * slices are loaded once and stay in shared memory; where they would take too much of it, the blocks of a cluster share
 * a row tile and each holds the activations of its slices alone. At the end of a row tile the slices meet in shared
 * memory (of all blocks of the cluster) and are added in order.
 *
 * Weights do not depend on earlier kernels: with an early start the first ones are under way before the kernel in front
 * has ended. Columns of a tile beyond the last activation row compute a copy of that row and are not written.
 */
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/unpack.cuh"

#define WARPS 8

struct few_args {
    const uint8_t *w, *x;
    const float   *scale;
    float         *out;
    int64_t        out_stride;
    int            rows, rows_pad, n, n_pad;
    int            n_kt, slice_kt; /* column tiles: of the matrix, of a slice */
    int            slices, cluster, stages;
};

/* What a warp still has to load: its slice of its row tiles, one column tile after the other. */
template <class T, int MT> struct few_stream {
    const few_args &a;
    uint32_t        ring;
    uint64_t        policy;
    int             tile, step, end; /* row tiles of MT * 16 rows */
    int             kt0, n, kt, lane;
    int             slot;

    /* Starts the next copy, if there is one; always closes a group, so that groups can be counted. */
    __device__ inline void next() {
        if (tile < end) {
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const int rt = tile * MT + m;
                if (rt * CUDA_TILE_ROWS < a.rows_pad) {
                    const uint8_t *from = T::at(a.w, rt, kt0 + kt, a.n_kt, a.rows_pad);
                    const uint32_t to = ring + (slot * MT + m) * T::BYTES;
#pragma unroll
                    for (int o = 0; o < T::BYTES; o += 512) {
                        if (o + 512 <= T::BYTES || o + lane * 16 < T::BYTES)
                            copy16_once(to + o + lane * 16, from + o + lane * 16, policy);
                    }
                }
            }
            if (++kt == n) kt = 0, tile += step;
        }
        copy_commit();
        if (++slot == a.stages) slot = 0;
    }
};

/* Multiplies one column tile: 16 * MT weight rows, COLS columns, NT * 8 activation rows. */
template <class T, int NT, int MT>
__device__ static inline void few_multiply(float acc[MT][NT][4], const uint8_t *tile, uint32_t x, int n, int lane) {
#pragma unroll
    for (int b = 0; b < T::COLS / CUDA_BLOCK_COLS; b++) {
        uint32_t fa[MT][4][4];
#pragma unroll
        for (int m = 0; m < MT; m++) T::fragments(fa[m], tile + m * T::BYTES, b, lane);
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int nt = 0; nt < NT; nt++) {
                const int row = min(nt * 8 + lane % 8, n - 1);
                uint32_t  fb[4];
                load_matrices(fb, x + (b * n + row) * CUDA_ROW_BYTES + ((4 * h + lane / 8) ^ (row & 7)) * 16);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma16<T::BF16>(acc[m][nt], fa[m][2 * h], fb[0], fb[1]);
                    mma16<T::BF16>(acc[m][nt], fa[m][2 * h + 1], fb[2], fb[3]);
                }
            }
        }
    }
}

/*
 * Adds the slices of FN column groups (from `first` on) of all row tiles of this round and writes them. `red` holds,
 * per warp, [MT][FN][8 activation rows][16 weight rows].
 */
template <int MT, int FN>
__device__ static inline void few_fold(const few_args &a, uint32_t red, int tile0, int groups, int first,
                                       uint32_t rank) {
    const int spc = a.slices / a.cluster, each = MT * FN * 128;
    for (int i = (int)rank * WARPS * 32 + (int)threadIdx.x; i < groups * each; i += a.cluster * WARPS * 32) {
        const int group = i / each, place = i % each, m = place / (FN * 128), col = first * 8 + place % (FN * 128) / 16;
        const int row = ((tile0 + group) * MT + m) * CUDA_TILE_ROWS + place % 16;
        if (row >= a.rows || col >= a.n) continue;
        float sum = 0;
        for (int s = 0; s < a.slices; s++)
            sum += cluster_load(red + ((group * spc + s % spc) * each + place) * 4, (uint32_t)(s / spc));
        a.out[col * a.out_stride + row] = sum * a.scale[col];
    }
}

/* The activations of the block's slices: [block of 64 columns][n rows] of the image, blocks b0.. to shared memory. */
__device__ static inline void few_load_rows(const few_args &a, uint32_t x, int b0, int n_blocks) {
    for (int i = (int)threadIdx.x; i < n_blocks * a.n * 8; i += WARPS * 32) {
        const int row = i / 8 % a.n, block = i / 8 / a.n;
        copy16(x + i * 16, a.x + ((int64_t)(b0 + block) * a.n_pad + row) * CUDA_ROW_BYTES + i % 8 * 16);
    }
    copy_commit();
}

template <class T, int NT, int MT>
__global__ __launch_bounds__(WARPS * 32, NT < 4 ? 2 : 1) void few_kernel(const few_args a) {
    extern __shared__ __align__(128) uint8_t smem[];
    constexpr int                            FN = NT < 2 ? 1 : 2, BLOCKS = T::COLS / CUDA_BLOCK_COLS;
    const int      lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, spc = a.slices / a.cluster;
    const uint32_t rank = a.cluster > 1 ? cluster_rank() : 0;
    const int      groups = WARPS / spc, group = warp / spc, slice = (int)rank * spc + warp % spc;
    const int      team = (int)blockIdx.x / a.cluster, n_teams = (int)gridDim.x / a.cluster;
    const int      n_tiles = (a.rows + MT * CUDA_TILE_ROWS - 1) / (MT * CUDA_TILE_ROWS);
    const int      kt0 = slice * a.slice_kt, n_kt = max(0, min(a.slice_kt, a.n_kt - kt0));
    const uint32_t ring_bytes = (uint32_t)a.stages * MT * T::BYTES;
    const uint8_t *ring = smem + warp * ring_bytes;
    const uint32_t red = smem_at(smem) + WARPS * ring_bytes, x = red + WARPS * MT * FN * 512;

    few_stream<T, MT> in = { a,
                             smem_at(ring),
                             policy_evict_first(),
                             team * groups + group,
                             n_teams * groups,
                             n_kt ? n_tiles : 0,
                             kt0,
                             n_kt,
                             0,
                             lane,
                             0 };
    for (int i = 0; i < a.stages - 1; i++) in.next();
    launch_wait();
    const int b0 = (int)rank * spc * a.slice_kt * BLOCKS, b1 = min(a.n_kt * BLOCKS, b0 + spc * a.slice_kt * BLOCKS);
    few_load_rows(a, x, b0, max(0, b1 - b0));
    copy_wait<0>();
    __syncthreads();
    launch_next();

    const uint32_t x_slice = x + (kt0 * BLOCKS - b0) * a.n * CUDA_ROW_BYTES;
    int            slot = 0;
    for (int tile0 = team * groups; tile0 < n_tiles; tile0 += n_teams * groups) {
        float acc[MT][NT][4] = {};
        for (int kt = 0; kt < (tile0 + group < n_tiles ? n_kt : 0); kt++) {
            copy_wait_n(a.stages - 2);
            __syncwarp();
            in.next();
            few_multiply<T, NT, MT>(acc, ring + slot * MT * T::BYTES, x_slice + kt * BLOCKS * a.n * CUDA_ROW_BYTES, a.n,
                                    lane);
            if (++slot == a.stages) slot = 0;
        }
#pragma unroll
        for (int first = 0; first < NT; first += FN) {
            float *mine = reinterpret_cast<float *>(smem + WARPS * ring_bytes) + warp * MT * FN * 128;
#pragma unroll
            for (int m = 0; m < MT; m++) {
#pragma unroll
                for (int i = 0; i < FN * 4; i++) {
                    const int col = i / 4 * 8 + lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 % 2 * 8;
                    mine[(m * FN * 8 + col) * 16 + row] = acc[m][first + i / 4][i % 4];
                }
            }
            cluster_sync(a.cluster == 1);
            few_fold<MT, FN>(a, red, tile0, groups, first, rank);
            cluster_sync(a.cluster == 1);
        }
    }
}

/* ---- the launching side ---- */

struct few_choice {
    int    n, mt, cluster, stages, per_sm;
    size_t smem;
};

/* Shared memory of one block; stages 0: without the ring. */
static size_t few_smem(const product_shape &p, int n, int mt, int cluster, int stages) {
    const int fn = n <= 8 ? 1 : 2, spc = p.slices / cluster;
    return (size_t)WARPS * mt * fn * 512 + (size_t)WARPS * stages * mt * p.tile_bytes +
           (size_t)n * spc * p.slice_cols * 2;
}

static bool few_fits(const cuda_device *d, const product_shape &p, few_choice *c, int per_sm, int least) {
    const size_t room = per_sm == 1 ? d->smem_bytes : d->smem_sm_bytes / per_sm - 1024;
    const size_t fixed = few_smem(p, c->n, c->mt, c->cluster, 0);
    if (fixed >= room) return false;
    const size_t stages = (room - fixed) / (WARPS * c->mt * p.tile_bytes);
    if ((int)stages < least) return false;
    c->stages = stages > 6 ? 6 : (int)stages;
    c->per_sm = per_sm;
    return true;
}

/* The plan for n rows; false where even one block does not hold their activations. */
static bool few_choose(const cuda_device *d, const product_shape &p, const cuda_few_plan *want, few_choice *c) {
    const int most = d->clusters ? p.slices : 1;
    for (int pass = want->blocks == 1 ? 1 : 0; pass < 2; pass++) {
        for (c->cluster = want->cluster ? want->cluster : 1; c->cluster <= most; c->cluster *= 2) {
            const int64_t tiles = (p.rows + c->mt * CUDA_TILE_ROWS - 1) / (c->mt * CUDA_TILE_ROWS);
            const bool    few_tiles = tiles * p.slices <= (int64_t)d->sms * WARPS;
            if (few_fits(d, p, c, pass == 0 && !few_tiles && c->n <= 16 ? 2 : 1, pass == 0 && !want->stages ? 3 : 2)) {
                if (want->stages && want->stages < c->stages) c->stages = want->stages;
                c->smem = few_smem(p, c->n, c->mt, c->cluster, c->stages);
                return true;
            }
            if (want->cluster) break;
        }
    }
    return false;
}

template <class T, int NT, int MT>
static int few_start(const cuda_device *d, const cuda_product_args *a, const few_choice &c, const few_args &k,
                     cuda_stream s, err *e) {
    const int     groups = WARPS / (k.slices / c.cluster), tile = MT * CUDA_TILE_ROWS * groups;
    const int64_t teams = (k.rows + tile - 1) / tile;
    /* A processing cluster's multiprocessors are not always a multiple of a large cluster. */
    const int64_t most = (int64_t)c.per_sm * ((c.cluster > 2 ? d->sms / 16 * 16 : d->sms) / c.cluster);
    cuda_shape shape = { (unsigned)((teams < most ? teams : most) * c.cluster), WARPS * 32, (unsigned)c.cluster, c.smem,
                         a->early && d->clusters };
    return cuda_launch(few_kernel<T, NT, MT>, shape, s, e, k);
}

template <class T>
static int few_start_type(const cuda_device *d, const cuda_product_args *a, const few_choice &c, const few_args &k,
                          cuda_stream s, err *e) {
    if (c.n <= 8) return few_start<T, 1, 1>(d, a, c, k, s, e);
    if (c.n <= 16) return few_start<T, 2, 2>(d, a, c, k, s, e);
    if (c.n <= 32) return few_start<T, 4, 2>(d, a, c, k, s, e);
    return few_start<T, 8, 2>(d, a, c, k, s, e);
}

int product_few(const cuda_device *d, const cuda_product_args *a, cuda_stream s, err *e) {
    const product_shape p = product_shape_of(&a->w);
    for (int64_t row = 0; row < a->x.n;) {
        few_choice c = {};
        c.n = a->x.n - row < CUDA_FEW ? (int)(a->x.n - row) : CUDA_FEW;
        for (;; c.n = (c.n + 7) / 8 * 8 - 8) {
            if (c.n <= 0)
                return err_set(e, ERR_LIMIT, "CUDA: activations of %lld columns do not fit into shared memory",
                               (long long)p.cols);
            c.mt = c.n <= 8 ? 1 : 2;
            if (few_choose(d, p, &a->plan, &c)) break;
        }
        few_args k = { (const uint8_t *)a->w.data,
                       (const uint8_t *)a->x.data + row * CUDA_ROW_BYTES,
                       a->x.scale + row,
                       a->out + row * a->out_stride,
                       a->out_stride,
                       (int)p.rows,
                       (int)p.rows_pad,
                       c.n,
                       (int)a->x.n_pad,
                       (int)((p.cols + p.tile_cols - 1) / p.tile_cols),
                       (int)(p.slice_cols / p.tile_cols),
                       p.slices,
                       c.cluster,
                       c.stages };
        int      rc;
        switch (a->w.type) {
        case TENSOR_F16: rc = few_start_type<unpack_f16>(d, a, c, k, s, e); break;
        case TENSOR_BF16: rc = few_start_type<unpack_bf16>(d, a, c, k, s, e); break;
        case TENSOR_Q4_0: rc = few_start_type<unpack_q4_0>(d, a, c, k, s, e); break;
        case TENSOR_Q8_0: rc = few_start_type<unpack_q8_0>(d, a, c, k, s, e); break;
        case TENSOR_Q4_K: rc = few_start_type<unpack_q4_k>(d, a, c, k, s, e); break;
        default: rc = few_start_type<unpack_q6_k>(d, a, c, k, s, e); break;
        }
        if (rc != 0) return rc;
        row += c.n;
    }
    return 0;
}
