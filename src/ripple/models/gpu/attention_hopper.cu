// Attention of few rows on many keys: live rows and isolated branches, without a mask in memory.
//
// Computes what attention_kernel.py does (without limits), for cached steps and for branches. A block holds some rows
// of one key head (its query heads folded into the rows) and one part of the keys; the blocks of a cluster hold the
// other parts and merge them through distributed shared memory. One producer thread issues bulk copies of tiles of
// keys and values; consumer warpgroups process them, 64 rows each: P V of one tile overlaps the softmax of the next.
// The last part also attends to the keys of the rows' own branches.
//
// attention_hopper.py defines all names in capitals that are not defined here. Heads are 128 wide: two swizzled lines.

constexpr int TILE = 64 * GROUPS;
constexpr int HALF_BYTES = KEYS * 128, STAGE_BYTES = 4 * HALF_BYTES;  // keys and values, two halves each
constexpr int QUERY_HALF_BYTES = 64 * 128;
constexpr int PARTIAL_BYTES = 4 * (WIDTH + 4);  // of a row for the merge: values, max, sum, two against bank conflicts
constexpr float MASKED = -1e30f;                // a score that contributes nothing to a softmax

INLINE void qk_mma(float (&s)[KEYS / 2], u64 q, u64 keys, int accumulate) { QK_MMA }
INLINE void pv_mma(float (&o)[WIDTH / 2], const u32 (&p)[4], u64 values) { PV_MMA }

struct Row {  // one query, and what it may see
  int hide_from, hide_to;  // stored keys that are hidden from it
  int own_from, own_to;    // branch rows whose keys it sees
  float row_max = MASKED, row_sum = 0;
};

extern "C" __global__ void __cluster_dims__(1, 1, PARTS) __launch_bounds__(128 * (GROUPS + 1), BLOCKS)
attend(const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
       const __grid_constant__ TensorMap own_map, const u16* qkv, u16* out, const i64* slots, const i64* key_len,
       const i64* hide, const i64* own_len, float scale, int n_rows, int n_live, int branch_len, int n_heads,
       int n_key_heads, int part_len, int first_row) {
  u32 stages = shared_memory(), queries = stages + STAGES * STAGE_BYTES;
  u32 k_full = queries + GROUPS * 2 * QUERY_HALF_BYTES, k_empty = k_full + 8 * STAGES;  // barriers
  u32 v_full = k_empty + 8 * STAGES, v_empty = v_full + 8 * STAGES;
  int canvas = blockIdx.y / n_key_heads, key_head = blockIdx.y % n_key_heads, part = blockIdx.z;
  int first = first_row * HEADS_PER_KEY + blockIdx.x * TILE, n_tile_rows = min(TILE, n_rows * HEADS_PER_KEY - first);
  int n_groups = (n_tile_rows + 63) / 64;
  int start = part * part_len, stop = min(start + part_len, (int)key_len[canvas]);
  int n_store_tiles = max(0, (stop - start + KEYS - 1) / KEYS), n_branch_tiles = 0, first_branch_row = 0;
  int last_branch = (first + n_tile_rows - 1) / HEADS_PER_KEY - n_live;  // a branch row; negative: none
  if (part == PARTS - 1 && last_branch >= 0) {
    first_branch_row = max(first / HEADS_PER_KEY - n_live, 0) / branch_len * branch_len;
    n_branch_tiles = ((last_branch / branch_len + 1) * branch_len - first_branch_row + KEYS - 1) / KEYS;
  }
  int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  int slot = (int)slots[canvas], n_kv_tiles = n_store_tiles + n_branch_tiles;
  auto copy_tile = [&](int i, const TensorMap& stored, int own_head, u32 to, u32 full) {
    u32 bar = full + i % STAGES * 8;
    to += i % STAGES * STAGE_BYTES;  // keys or values of its stage
    barrier_expect(bar, STAGE_BYTES / 2);
    for (int half = 0; half < 2; half++, to += HALF_BYTES) {
      if (i < n_store_tiles) {
        tma_copy(to, stored, 64 * half, start + i * KEYS, key_head, slot, bar, READ_ONCE);
      } else {
        int row = canvas * n_rows + n_live + first_branch_row + (i - n_store_tiles) * KEYS;
        tma_copy(to, own_map, own_head * WIDTH + 64 * half, row, bar, READ_OFTEN);
      }
    }
  };
  auto copy_keys = [&](int i) { copy_tile(i, k_map, n_heads + key_head, stages, k_full); };
  auto copy_values = [&](int i) {
    copy_tile(i, v_map, n_heads + n_key_heads + key_head, stages + 2 * HALF_BYTES, v_full);
  };
  if (threadIdx.x == 128 * GROUPS) {
    prefetch_tensor_map(k_map);
    prefetch_tensor_map(v_map);
    prefetch_tensor_map(own_map);
    for (int s = 0; s < STAGES; s++) {
      barrier_init(k_full + 8 * s, 1), barrier_init(k_empty + 8 * s, n_groups);
      barrier_init(v_full + 8 * s, 1), barrier_init(v_empty + 8 * s, n_groups);
    }
    fence_barrier_init();
    for (int i = 0; i < min(STAGES, n_kv_tiles); i++) copy_keys(i), copy_values(i);
  }
  __syncthreads();

  if (group == GROUPS) {
    lower_register_limit<32>();
    for (int i = STAGES; threadIdx.x == 128 * GROUPS && i < n_kv_tiles; i++) {
      barrier_wait(k_empty + i % STAGES * 8, ((i / STAGES) & 1) ^ 1);
      copy_keys(i);
      barrier_wait(v_empty + i % STAGES * 8, ((i / STAGES) & 1) ^ 1);
      copy_values(i);
    }
    cluster_barrier();
    cluster_barrier();
    return;
  }
  raise_register_limit<160>();
  if (group < n_groups) {
    u32 q_tile = queries + group * 2 * QUERY_HALF_BYTES;
#pragma unroll
    for (int j = 0; j < 8; j++) {  // 64 rows of 16 chunks of 8 elements; the chunks of 8 rows are swizzled
      int local = (threadIdx.x % 128 + 128 * j) / 16, chunk = threadIdx.x % 16;
      int flat = min(first + group * 64 + local, n_rows * HEADS_PER_KEY - 1);
      i64 head = ((i64)canvas * n_rows + flat / HEADS_PER_KEY) * (n_heads + 2 * n_key_heads) +
                 key_head * HEADS_PER_KEY + flat % HEADS_PER_KEY;
      uint4 v = *(const uint4*)(qkv + head * WIDTH + 8 * chunk);
      u32 to = q_tile + chunk / 8 * QUERY_HALF_BYTES + local * 128 + (chunk % 8 ^ local % 8) * 16;
      write_shared(to, v);
    }
    fence_async_proxy();
    sync_threads(2 + group, 128);

    // A thread holds columns 2 * (lane % 4) and the next, of every 8, of two rows 8 apart.
    Row rows[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      int flat = min(first + group * 64 + warp * 16 + lane / 4 + 8 * r, n_rows * HEADS_PER_KEY - 1);
      int branch_row = flat / HEADS_PER_KEY - n_live;
      rows[r].hide_from = rows[r].hide_to = rows[r].own_from = rows[r].own_to = 0;
      if (branch_row >= 0) {
        const i64* hide_range = hide + 2 * ((i64)canvas * (n_rows - n_live) + branch_row);
        int branch = branch_row / branch_len;
        rows[r].hide_from = (int)hide_range[0], rows[r].hide_to = (int)hide_range[1];
        rows[r].own_from = branch * branch_len;
        rows[r].own_to = rows[r].own_from + (int)own_len[canvas * ((n_rows - n_live) / branch_len) + branch];
      }
    }
    float s[KEYS / 2], o[WIDTH / 2], rescale[2];  // scores; output; its factor after a new maximum
    u32 p[KEYS / 16][4];                          // probabilities, in pairs
#pragma unroll
    for (int j = 0; j < WIDTH / 2; j++) o[j] = 0;

    auto score_tile = [&](int i) {
      u32 keys = stages + i % STAGES * STAGE_BYTES;
      barrier_wait(k_full + i % STAGES * 8, (i / STAGES) & 1);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < WIDTH / 16; k++) {
        u32 q_at = q_tile + k / 4 * QUERY_HALF_BYTES, k_at = keys + k / 4 * HALF_BYTES;
        qk_mma(s, k_major_tile(q_at + k % 4 * 32), k_major_tile(k_at + k % 4 * 32), k > 0);
      }
      wgmma_commit();
    };
    auto softmax_tile = [&](int i) {  // scores -> probabilities, and the factor for the output so far
      if (threadIdx.x % 128 == 0) barrier_arrive(k_empty + i % STAGES * 8, part);
      bool is_own = i >= n_store_tiles;
      int at = is_own ? first_branch_row + (i - n_store_tiles) * KEYS : start + i * KEYS;
#pragma unroll
      for (int r = 0; r < 2; r++) {
        Row& row = rows[r];
        bool whole = !is_own && at + KEYS <= stop && (at >= row.hide_to || at + KEYS <= row.hide_from);
        if (!whole) {  // sees one range of keys except a gap; u32 differences test both ends at once
          u32 first_seen = is_own ? row.own_from : 0, n_seen = (is_own ? row.own_to : stop) - first_seen;
          u32 gap = row.hide_from, n_gap = is_own ? 0 : row.hide_to - gap;
#pragma unroll
          for (int j = 0; j < KEYS / 4; j++) {
            u32 key = at + 8 * (j / 2) + 2 * (lane % 4) + j % 2;
            bool sees = (key - first_seen < n_seen) & (key - gap >= n_gap);
            if (!sees) s[4 * (j / 2) + 2 * r + j % 2] = MASKED;
          }
        }
        float row_max = row.row_max;
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++) row_max = fmaxf(row_max, s[4 * (j / 2) + 2 * r + j % 2]);
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 1));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 2));
        float base = row_max == MASKED ? 0 : row_max * scale;  // a row that has seen no key yet
        float sum = 0;
        rescale[r] = exp2_approx(row.row_max * scale - base);
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++) {
          float& p = s[4 * (j / 2) + 2 * r + j % 2];
          p = exp2_approx(p * scale - base);
          sum += p;
        }
        row.row_sum = row.row_sum * rescale[r] + sum;
        row.row_max = row_max;
      }
    };
    auto pack_probabilities = [&]() {
#pragma unroll
      for (int j = 0; j < KEYS / 4; j++) p[j / 4][j % 4] = pack_bf16(s[2 * j], s[2 * j + 1]);
    };
    auto wait_values = [&](int i) {
      u32 values = stages + i % STAGES * STAGE_BYTES + 2 * HALF_BYTES;
      barrier_wait(v_full + i % STAGES * 8, (i / STAGES) & 1);
      int n_real = i >= n_store_tiles ? n_rows - n_live - first_branch_row - (i - n_store_tiles) * KEYS
                                      : stop - start - i * KEYS;
      if (n_real < KEYS) {  // rows behind the end may hold anything, and 0 times NaN is NaN
        for (int c = threadIdx.x; c < (KEYS - n_real) * 16; c += 128 * n_groups)
          write_shared(values + c / 8 % 2 * HALF_BYTES + (n_real + c / 16) * 128 + c % 8 * 16, make_uint4(0, 0, 0, 0));
        fence_async_proxy();
        sync_threads(1, 128 * n_groups);
      }
    };
    auto accumulate_pv = [&](int i) {
      u32 values = stages + i % STAGES * STAGE_BYTES + 2 * HALF_BYTES;
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < KEYS / 16; k++) pv_mma(o, p[k], mn_major_tile(values + k * 16 * 128, HALF_BYTES));
      wgmma_commit();
    };
    if (n_kv_tiles > 0) {
      score_tile(0);
      wgmma_wait<0>();
      softmax_tile(0);
      pack_probabilities();
#pragma unroll 1
      for (int i = 1; i < n_kv_tiles; i++) {
        wait_values(i - 1);
        score_tile(i);
        accumulate_pv(i - 1);
        wgmma_wait<1>();  // for the scores only
        softmax_tile(i);
        wgmma_wait<0>();
        if (threadIdx.x % 128 == 0) barrier_arrive(v_empty + (i - 1) % STAGES * 8, part);
#pragma unroll
        for (int j = 0; j < WIDTH / 2; j++) o[j] *= rescale[j / 2 % 2];
        pack_probabilities();
      }
      wait_values(n_kv_tiles - 1);
      accumulate_pv(n_kv_tiles - 1);
      wgmma_wait<0>();
    }

    // Write output, maximum and sum to shared memory, where the whole cluster can read them.
    sync_threads(1, 128 * n_groups);  // all stages have been consumed
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float row_sum = rows[r].row_sum + __shfl_xor_sync(~0u, rows[r].row_sum, 1);
      row_sum += __shfl_xor_sync(~0u, row_sum, 2);
      u32 to = stages + (group * 64 + warp * 16 + lane / 4 + 8 * r) * PARTIAL_BYTES;
#pragma unroll
      for (int j = 0; j < WIDTH / 8; j++)
        write_shared(to + 4 * (8 * j + 2 * (lane % 4)), make_float2(o[4 * j + 2 * r], o[4 * j + 2 * r + 1]));
      if (lane % 4 == 0) write_shared(to + 4 * WIDTH, make_float2(rows[r].row_max, row_sum));
    }
  }
  cluster_sync();
  for (int row = part + PARTS * (threadIdx.x / 32); row < n_tile_rows; row += PARTS * 4 * GROUPS) {
    u32 at = stages + row * PARTIAL_BYTES;
    float2 part_stats[PARTS];  // maximum and sum
    float row_max = MASKED, row_sum = 0;
#pragma unroll
    for (int b = 0; b < PARTS; b++)
      row_max = fmaxf(row_max, (part_stats[b] = read_cluster_float2(at + 4 * WIDTH, b)).x);
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int b = 0; b < PARTS; b++) {
      float weight = exp2_approx((part_stats[b].x - row_max) * scale);
      float4 v = read_cluster_float4(at + 16 * lane, b);
      row_sum += weight * part_stats[b].y;
      sum.x += weight * v.x, sum.y += weight * v.y, sum.z += weight * v.z, sum.w += weight * v.w;
    }
    int flat = first + row, head = key_head * HEADS_PER_KEY + flat % HEADS_PER_KEY;
    i64 to = ((i64)canvas * n_rows + flat / HEADS_PER_KEY) * n_heads + head;
    float share = 1 / row_sum;
    *(uint2*)(out + to * WIDTH + 4 * lane) =
        make_uint2(pack_bf16(sum.x * share, sum.y * share), pack_bf16(sum.z * share, sum.w * share));
  }
  cluster_barrier();  // keep shared memory alive until all blocks have read it
}
