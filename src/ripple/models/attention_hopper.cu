// Attention of few rows on many keys: live rows and isolated branches, without a mask in memory.
//
// Does what attention_kernel.py does, for cached steps and for the branches of others. A block holds some rows of
// one key head (its query heads folded into the rows) and one part of the keys; the blocks of a cluster hold the
// other parts, and merge them through each other's shared memory. One thread copies tiles of keys and values;
// warpgroups meet them, 64 rows each: while a tile's values are weighed, the next tile's scores become weights. The
// last part also meets the keys of the rows' own branches.
//
// attention_hopper.py defines all names in capitals that are not defined here. Heads are 128 wide: two swizzled lines.

constexpr int TILE = 64 * GROUPS;
constexpr int HALF_BYTES = KEYS * 128, STAGE_BYTES = 4 * HALF_BYTES;  // keys and values, two halves each
constexpr int QUERY_HALF_BYTES = 64 * 128;
constexpr int LEFT_BYTES = 4 * (WIDTH + 4);  // of a row for the merge: values, top, total, two to spread the banks
constexpr float NOTHING = -1e30f;            // a score that no softmax notices

INLINE void score(float (&s)[KEYS / 2], u64 q, u64 keys, int adds) { SCORE }
INLINE void weigh(float (&o)[WIDTH / 2], const u32 (&p)[4], u64 values) { WEIGH }

struct Row {  // one query, and what it may see
  int hidden_from, hidden_to;  // stored keys it may not see
  int own_from, own_to;        // branch rows whose keys it sees
  float top = NOTHING, total = 0;
};

extern "C" __global__ void __cluster_dims__(1, 1, PARTS) __launch_bounds__(128 * (GROUPS + 1), BLOCKS)
attend(const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
       const __grid_constant__ TensorMap own_map, const u16* qkv, u16* out, const i64* slots, const i64* key_len,
       const i64* hidden, const i64* own_len, float scale, int n_rows, int n_live, int branch_len, int n_heads,
       int n_key_heads, int part_len, int first_row) {
  u32 stages = shared_memory(), queries = stages + STAGES * STAGE_BYTES;
  u32 k_full = queries + GROUPS * 2 * QUERY_HALF_BYTES, k_empty = k_full + 8 * STAGES;  // barriers
  u32 v_full = k_empty + 8 * STAGES, v_empty = v_full + 8 * STAGES;
  int canvas = blockIdx.y / n_key_heads, key_head = blockIdx.y % n_key_heads, part = blockIdx.z;
  int first = first_row * HEADS_PER_KEY + blockIdx.x * TILE, n_here = min(TILE, n_rows * HEADS_PER_KEY - first);
  int n_groups = (n_here + 63) / 64;
  int start = part * part_len, stop = min(start + part_len, (int)key_len[canvas]);
  int n_stored = max(0, (stop - start + KEYS - 1) / KEYS), n_own = 0, own_first = 0;
  int last_branch = (first + n_here - 1) / HEADS_PER_KEY - n_live;  // row behind the live ones, if any
  if (part == PARTS - 1 && last_branch >= 0) {
    own_first = max(first / HEADS_PER_KEY - n_live, 0) / branch_len * branch_len;
    n_own = ((last_branch / branch_len + 1) * branch_len - own_first + KEYS - 1) / KEYS;
  }
  int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  int slot = (int)slots[canvas], n_all = n_stored + n_own;
  auto copy_tile = [&](int i, const TensorMap& stored, int own_head, u32 to, u32 full) {
    u32 bar = full + i % STAGES * 8;
    to += i % STAGES * STAGE_BYTES;  // keys or values of its stage
    barrier_expect(bar, STAGE_BYTES / 2);
    for (int half = 0; half < 2; half++, to += HALF_BYTES) {
      if (i < n_stored) {
        copy(to, stored, 64 * half, start + i * KEYS, key_head, slot, bar, READ_ONCE);
      } else {
        int row = canvas * n_rows + n_live + own_first + (i - n_stored) * KEYS;
        copy(to, own_map, own_head * WIDTH + 64 * half, row, bar, READ_OFTEN);
      }
    }
  };
  auto copy_keys = [&](int i) { copy_tile(i, k_map, n_heads + key_head, stages, k_full); };
  auto copy_values = [&](int i) {
    copy_tile(i, v_map, n_heads + n_key_heads + key_head, stages + 2 * HALF_BYTES, v_full);
  };
  if (threadIdx.x == 128 * GROUPS) {
    copies_of(k_map);
    copies_of(v_map);
    copies_of(own_map);
    for (int s = 0; s < STAGES; s++) {
      barrier_init(k_full + 8 * s, 1), barrier_init(k_empty + 8 * s, n_groups);
      barrier_init(v_full + 8 * s, 1), barrier_init(v_empty + 8 * s, n_groups);
    }
    barriers_ready();
    for (int i = 0; i < min(STAGES, n_all); i++) copy_keys(i), copy_values(i);
  }
  __syncthreads();

  if (group == GROUPS) {
    give_registers<32>();
    for (int i = STAGES; threadIdx.x == 128 * GROUPS && i < n_all; i++) {
      barrier_wait(k_empty + i % STAGES * 8, ((i / STAGES) & 1) ^ 1);
      copy_keys(i);
      barrier_wait(v_empty + i % STAGES * 8, ((i / STAGES) & 1) ^ 1);
      copy_values(i);
    }
    meet_cluster();
    meet_cluster();
    return;
  }
  take_registers<160>();
  if (group < n_groups) {
    u32 mine = queries + group * 2 * QUERY_HALF_BYTES;
#pragma unroll
    for (int j = 0; j < 8; j++) {  // 64 rows of 16 chunks of 8 numbers; the chunks of 8 rows are swizzled
      int local = (threadIdx.x % 128 + 128 * j) / 16, chunk = threadIdx.x % 16;
      int flat = min(first + group * 64 + local, n_rows * HEADS_PER_KEY - 1);
      i64 head = ((i64)canvas * n_rows + flat / HEADS_PER_KEY) * (n_heads + 2 * n_key_heads) +
                 key_head * HEADS_PER_KEY + flat % HEADS_PER_KEY;
      uint4 v = *(const uint4*)(qkv + head * WIDTH + 8 * chunk);
      u32 to = mine + chunk / 8 * QUERY_HALF_BYTES + local * 128 + (chunk % 8 ^ local % 8) * 16;
      write_shared(to, v);
    }
    written_for_products();
    sync_threads(2 + group, 128);

    // A thread holds columns 2 * (lane % 4) and the next, of every 8, of two rows 8 apart.
    Row rows[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      int flat = min(first + group * 64 + warp * 16 + lane / 4 + 8 * r, n_rows * HEADS_PER_KEY - 1);
      int behind = flat / HEADS_PER_KEY - n_live;
      rows[r].hidden_from = rows[r].hidden_to = rows[r].own_from = rows[r].own_to = 0;
      if (behind >= 0) {
        const i64* span = hidden + 2 * ((i64)canvas * (n_rows - n_live) + behind);
        int branch = behind / branch_len;
        rows[r].hidden_from = (int)span[0], rows[r].hidden_to = (int)span[1];
        rows[r].own_from = branch * branch_len;
        rows[r].own_to = rows[r].own_from + (int)own_len[canvas * ((n_rows - n_live) / branch_len) + branch];
      }
    }
    float s[KEYS / 2], o[WIDTH / 2], fades[2];  // scores, weighted values, what is left of the older ones
    u32 p[KEYS / 16][4];                        // weights, in pairs
#pragma unroll
    for (int j = 0; j < WIDTH / 2; j++) o[j] = 0;

    auto score_tile = [&](int i) {
      u32 keys = stages + i % STAGES * STAGE_BYTES;
      barrier_wait(k_full + i % STAGES * 8, (i / STAGES) & 1);
      products_begin();
#pragma unroll
      for (int k = 0; k < WIDTH / 16; k++) {
        u32 q_at = mine + k / 4 * QUERY_HALF_BYTES, k_at = keys + k / 4 * HALF_BYTES;
        score(s, matrix(q_at + k % 4 * 32), matrix(k_at + k % 4 * 32), k > 0);
      }
      products_end();
    };
    auto soften = [&](int i) {  // scores become weights, and older values will fade
      if (threadIdx.x % 128 == 0) barrier_arrive(k_empty + i % STAGES * 8, part);
      bool is_own = i >= n_stored;
      int at = is_own ? own_first + (i - n_stored) * KEYS : start + i * KEYS;
#pragma unroll
      for (int r = 0; r < 2; r++) {
        Row& row = rows[r];
        bool whole = !is_own && at + KEYS <= stop && (at >= row.hidden_to || at + KEYS <= row.hidden_from);
        if (!whole) {  // sees some keys, but for a gap; u32 differences test both ends at once
          u32 some = is_own ? row.own_from : 0, n_some = (is_own ? row.own_to : stop) - some;
          u32 gap = row.hidden_from, n_gap = is_own ? 0 : row.hidden_to - gap;
#pragma unroll
          for (int j = 0; j < KEYS / 4; j++) {
            u32 key = at + 8 * (j / 2) + 2 * (lane % 4) + j % 2;
            bool sees = (key - some < n_some) & (key - gap >= n_gap);
            if (!sees) s[4 * (j / 2) + 2 * r + j % 2] = NOTHING;
          }
        }
        float top = row.top;
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++) top = fmaxf(top, s[4 * (j / 2) + 2 * r + j % 2]);
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        float base = top == NOTHING ? 0 : top * scale;  // a row that has seen nothing yet
        float sum = 0;
        fades[r] = power_of_2(row.top * scale - base);
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++) {
          float& p = s[4 * (j / 2) + 2 * r + j % 2];
          p = power_of_2(p * scale - base);
          sum += p;
        }
        row.total = row.total * fades[r] + sum;
        row.top = top;
      }
    };
    auto pack_weights = [&]() {
#pragma unroll
      for (int j = 0; j < KEYS / 4; j++) p[j / 4][j % 4] = bf16_pair(s[2 * j], s[2 * j + 1]);
    };
    auto await_values = [&](int i) {
      u32 values = stages + i % STAGES * STAGE_BYTES + 2 * HALF_BYTES;
      barrier_wait(v_full + i % STAGES * 8, (i / STAGES) & 1);
      int n_real = i >= n_stored ? n_rows - n_live - own_first - (i - n_stored) * KEYS : stop - start - i * KEYS;
      if (n_real < KEYS) {  // what lies behind may be anything, and 0 times NaN is NaN
        for (int c = threadIdx.x; c < (KEYS - n_real) * 16; c += 128 * n_groups)
          write_shared(values + c / 8 % 2 * HALF_BYTES + (n_real + c / 16) * 128 + c % 8 * 16, make_uint4(0, 0, 0, 0));
        written_for_products();
        sync_threads(1, 128 * n_groups);
      }
    };
    auto weigh_values = [&](int i) {
      u32 values = stages + i % STAGES * STAGE_BYTES + 2 * HALF_BYTES;
      products_begin();
#pragma unroll
      for (int k = 0; k < KEYS / 16; k++) weigh(o, p[k], upright(values + k * 16 * 128, HALF_BYTES));
      products_end();
    };
    if (n_all > 0) {
      score_tile(0);
      products_wait<0>();
      soften(0);
      pack_weights();
#pragma unroll 1
      for (int i = 1; i < n_all; i++) {
        await_values(i - 1);
        score_tile(i);
        weigh_values(i - 1);
        products_wait<1>();  // for the scores alone
        soften(i);
        products_wait<0>();
        if (threadIdx.x % 128 == 0) barrier_arrive(v_empty + (i - 1) % STAGES * 8, part);
#pragma unroll
        for (int j = 0; j < WIDTH / 2; j++) o[j] *= fades[j / 2 % 2];
        pack_weights();
      }
      await_values(n_all - 1);
      weigh_values(n_all - 1);
      products_wait<0>();
    }

    // Leave weighted values, top and total where the whole cluster can read them.
    sync_threads(1, 128 * n_groups);  // all stages have been read
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float total = rows[r].total + __shfl_xor_sync(~0u, rows[r].total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      u32 to = stages + (group * 64 + warp * 16 + lane / 4 + 8 * r) * LEFT_BYTES;
#pragma unroll
      for (int j = 0; j < WIDTH / 8; j++)
        write_shared(to + 4 * (8 * j + 2 * (lane % 4)), make_float2(o[4 * j + 2 * r], o[4 * j + 2 * r + 1]));
      if (lane % 4 == 0) write_shared(to + 4 * WIDTH, make_float2(rows[r].top, total));
    }
  }
  sync_cluster();
  for (int row = part + PARTS * (threadIdx.x / 32); row < n_here; row += PARTS * 4 * GROUPS) {
    u32 at = stages + row * LEFT_BYTES;
    float2 seen[PARTS];  // top and total
    float top = NOTHING, total = 0;
#pragma unroll
    for (int b = 0; b < PARTS; b++) top = fmaxf(top, (seen[b] = read_two(at + 4 * WIDTH, b)).x);
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int b = 0; b < PARTS; b++) {
      float weight = power_of_2((seen[b].x - top) * scale);
      float4 v = read_four(at + 16 * lane, b);
      total += weight * seen[b].y;
      sum.x += weight * v.x, sum.y += weight * v.y, sum.z += weight * v.z, sum.w += weight * v.w;
    }
    int flat = first + row, head = key_head * HEADS_PER_KEY + flat % HEADS_PER_KEY;
    i64 to = ((i64)canvas * n_rows + flat / HEADS_PER_KEY) * n_heads + head;
    float share = 1 / total;
    *(uint2*)(out + to * WIDTH + 4 * lane) =
        make_uint2(bf16_pair(sum.x * share, sum.y * share), bf16_pair(sum.z * share, sum.w * share));
  }
  meet_cluster();  // nobody leaves while another block may still read here
}
