// The functions of hopper.cuh for a CPU: one cluster at a time, one fibre per thread, scheduled round-robin.
//
// Asynchronous operations complete as late as the device allows: a bulk copy after a random number of turns, a
// product only at the wait for it, and warpgroups pause now and then. So a stage that is overwritten too early or
// a barrier that opens too soon gives wrong numbers, and a wait without end aborts.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define INLINE inline
#define __global__
#define __grid_constant__
#define __cluster_dims__(...)
#define __launch_bounds__(...)

using std::max;
using std::min;

struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
struct dim3 { int x = 1, y = 1, z = 1; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

struct TensorMap {  // as the test's hopper.tensor_map writes it
  const u16* base;
  i64 n;
  i64 sizes[4], strides[4], box[4];  // strides in bytes
};

constexpr int SHARED = 232448, SPIN_LIMIT = 200000;
struct Barrier { int wanted = 0, arrived = 0, phase = 0; i64 bytes = 0; };
struct SyncPoint { int arrived = 0, generation = 0; };
struct Block {
  dim3 at;
  alignas(1024) char shared[SHARED];
  std::map<u32, Barrier> barriers;
  SyncPoint sync_points[16];
};
struct Fibre {
  ucontext_t context;
  std::vector<char> stack;
  Block* block;
  int thread, number;
  bool done = false;
  std::vector<std::function<void()>> batch;
  std::deque<std::vector<std::function<void()>>> batches;
  float shuffle_value = 0;  // read by the other lanes of the warp
  u32 warp_registers[4];
};
struct PendingCopy { int turns; std::function<void()> work; };

static std::vector<Block*> cluster;
static std::vector<Fibre*> fibres;
static std::deque<PendingCopy> copies;
static Fibre* current;
static ucontext_t scheduler;
static SyncPoint cluster_sync_point;
static std::map<std::pair<Block*, int>, SyncPoint> warps;
static dim3 grid, n_threads;
static u32 chance = 1;

#define threadIdx (dim3{current->thread, 0, 0})
#define blockIdx (current->block->at)
#define gridDim grid

inline void yield() { swapcontext(&current->context, &scheduler); }

template <class Test>
void until(Test test) {
  for (int turns = 0; !test(); turns++) {
    if (turns > SPIN_LIMIT) { fprintf(stderr, "thread %d waits for ever\n", current->thread); abort(); }
    yield();
  }
}

inline void arrive_and_wait(SyncPoint& m, int n) {
  int generation = m.generation;
  if (++m.arrived == n) m.arrived = 0, m.generation++;
  until([&] { return m.generation != generation; });
}

inline void sync_warp() { arrive_and_wait(warps[{current->block, current->thread / 32}], 32); }

// -- shared memory

inline u32 shared_memory() { return 0; }
inline char* at(u32 address, u32 block) { return cluster.at(block)->shared + address; }
inline void write_shared(u32 to, float2 v) { memcpy(current->block->shared + to, &v, sizeof v); }
inline void write_shared(u32 to, uint4 v) { memcpy(current->block->shared + to, &v, sizeof v); }
inline float2 read_cluster_float2(u32 from, u32 block) { float2 v; memcpy(&v, at(from, block), sizeof v); return v; }
inline float4 read_cluster_float4(u32 from, u32 block) { float4 v; memcpy(&v, at(from, block), sizeof v); return v; }

// -- waiting

inline void flip_phase(Barrier& b) {
  if (b.arrived == b.wanted && b.bytes == 0) b.arrived = 0, b.phase ^= 1;
}
inline void barrier_init(u32 a, u32 n) { current->block->barriers[a] = Barrier{(int)n}; }
inline void fence_barrier_init() {}
inline void barrier_expect(u32 a, u32 n_bytes) {
  Barrier& b = current->block->barriers.at(a);
  b.bytes += n_bytes, b.arrived++;
  flip_phase(b);
}
inline void barrier_arrive(u32 a, u32 block) {
  Barrier& b = cluster.at(block)->barriers.at(a);
  b.arrived++;
  flip_phase(b);
}
inline void barrier_wait(u32 a, u32 phase) {
  Barrier& b = current->block->barriers.at(a);
  until([&] { return (u32)b.phase != phase; });
}
inline void sync_threads(u32 number, u32 n) { arrive_and_wait(current->block->sync_points[number], n); }
inline void __syncthreads() { sync_threads(0, n_threads.x); }
inline void cluster_barrier() { arrive_and_wait(cluster_sync_point, n_threads.x * cluster.size()); }
inline void cluster_sync() { arrive_and_wait(cluster_sync_point, n_threads.x * cluster.size()); }

// -- bulk copies

constexpr u64 READ_ONCE = 0, READ_OFTEN = 0;
inline u32 swizzled(u32 a) { return a ^ (a >> 7 & 7) << 4; }

inline void prefetch_tensor_map(const TensorMap&) {}
inline void copy_box(u32 to, const TensorMap& map, std::vector<int> first, u32 barrier, std::vector<Block*> blocks) {
  chance = chance * 1664525 + 1013904223;
  copies.push_back({(int)(chance >> 28), [=] {
    i64 n_lines = 1;
    for (int d = 1; d < map.n; d++) n_lines *= map.box[d];
    for (i64 line = 0; line < n_lines; line++)
      for (i64 c = 0; c < map.box[0]; c++) {
        i64 rest = line, offset = 2 * (first[0] + c);
        bool inside = first[0] + c < map.sizes[0];
        for (int d = 1; d < map.n; d++) {
          i64 index = first[d] + rest % map.box[d];
          rest /= map.box[d];
          inside = inside && index < map.sizes[d];
          offset += index * map.strides[d];
        }
        u16 value = inside ? *(const u16*)((const char*)map.base + offset) : 0;
        for (Block* block : blocks) memcpy(block->shared + swizzled(to + 128 * line + 2 * c), &value, 2);
      }
    for (Block* block : blocks) {
      Barrier& b = block->barriers.at(barrier);
      b.bytes -= n_lines * map.box[0] * 2;
      flip_phase(b);
    }
  }});
}
inline void tma_copy(u32 to, const TensorMap& map, int a, int b, int c, int d, u32 barrier, u64) {
  copy_box(to, map, {a, b, c, d}, barrier, {current->block});
}
inline void tma_copy(u32 to, const TensorMap& map, int a, int b, u32 barrier, u64) {
  copy_box(to, map, {a, b}, barrier, {current->block});
}

// -- products

inline u64 k_major_tile(u32 a) { return a; }
inline u64 mn_major_tile(u32 a, u32 next_line) { return a | (u64)next_line << 32; }
inline float wide_of(u16 narrow) { u32 bits = (u32)narrow << 16; float f; memcpy(&f, &bits, 4); return f; }
inline float number(Block* block, u32 a) { u16 v; memcpy(&v, block->shared + swizzled(a), 2); return wide_of(v); }
inline float across(Block* block, u64 tile, int line, int inner) { return number(block, (u32)tile + 128 * line + 2 * inner); }
inline float along(Block* block, u64 tile, int column, int inner) {
  return number(block, (u32)tile + column / 64 * (u32)(tile >> 32) + 128 * inner + 2 * (column % 64));
}

template <int N, class Left, class Right>
void product(float (&sum)[N], int adds, Left left, Right right) {
  int lane = current->thread % 32, warp = current->thread % 128 / 32;
  for (int i = 0; i < N; i++) {
    int row = 16 * warp + lane / 4 + i / 2 % 2 * 8, column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    float s = adds ? sum[i] : 0;
    for (int k = 0; k < 16; k++) s += left(row, k) * right(column, k);
    sum[i] = s;
  }
}

template <int N>
void product_of_tiles(float (&sum)[N], u64 left, u64 right, int adds) {
  Block* block = current->block;
  current->batch.push_back([=, &sum] {
    product(sum, adds, [=](int row, int k) { return across(block, left, row, k); },
            [=](int column, int k) { return across(block, right, column, k); });
  });
}

template <int N>
void product_of_registers(float (&sum)[N], const u32 (&left)[4], u64 right) {
  memcpy(current->warp_registers, left, sizeof current->warp_registers);
  sync_warp();
  int lane = current->thread % 32;
  float row[2][16];  // of this lane, gathered from the four that hold them
  for (int q = 0; q < 4; q++) {
    Fibre* other = fibres[current->number - lane % 4 + q];
    for (int j = 0; j < 4; j++) {
      row[j % 2][j / 2 * 8 + 2 * q] = wide_of((u16)other->warp_registers[j]);
      row[j % 2][j / 2 * 8 + 2 * q + 1] = wide_of((u16)(other->warp_registers[j] >> 16));
    }
  }
  sync_warp();
  Block* block = current->block;
  std::vector<float> kept(&row[0][0], &row[0][0] + 32);
  current->batch.push_back([=, &sum] {
    product(sum, 1, [=](int r, int k) { return kept[r % 16 / 8 * 16 + k]; },
            [=](int column, int k) { return along(block, right, column, k); });
  });
}

inline void wgmma_fence() {}
inline void wgmma_commit() { current->batches.push_back(std::move(current->batch)); current->batch.clear(); }
template <int LEFT>
void wgmma_wait() {
  yield();
  while ((int)current->batches.size() > LEFT) {
    for (auto& work : current->batches.front()) work();
    current->batches.pop_front();
  }
}
inline void fence_async_proxy() {}
template <int N> void raise_register_limit() {}
template <int N> void lower_register_limit() {}

// -- numbers

inline u16 bf16(float f) {
  u32 bits;
  memcpy(&bits, &f, 4);
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
inline u32 pack_bf16(float low, float high) { return bf16(low) | (u32)bf16(high) << 16; }
inline float exp2_approx(float x) { return exp2f(x); }
inline float __shfl_xor_sync(u32, float value, int with) {
  current->shuffle_value = value;
  sync_warp();
  float received = fibres[current->number ^ with]->shuffle_value;  // warps begin at multiples of 32
  sync_warp();
  return received;
}

// -- running a grid

template <class... Args, size_t... I>
void call(void (*kernel)(Args...), void** values, std::index_sequence<I...>) {
  kernel(*(std::remove_const_t<Args>*)values[I]...);
}

static std::function<void()> body;
static void start() {
  body();
  current->done = true;
  swapcontext(&current->context, &scheduler);
}

inline void run_cluster() {
  for (Fibre* f : fibres) {
    getcontext(&f->context);
    f->stack.resize(1 << 16);
    f->context.uc_stack.ss_sp = f->stack.data();
    f->context.uc_stack.ss_size = f->stack.size();
    makecontext(&f->context, start, 0);
  }
  bool busy = true;
  for (u32 round = 0; busy; round++) {
    busy = false;
    for (Fibre* f : fibres) {
      bool rests = (f->number / 128 + 1) * (round / 40 + 1) * 2654435761u >> 31;  // its warpgroup, for a while
      if (!f->done) busy = true;
      if (!f->done && !rests) current = f, swapcontext(&scheduler, &f->context);
    }
    for (size_t i = 0; i < copies.size();)
      if (copies[i].turns-- <= 0) copies[i].work(), copies.erase(copies.begin() + i); else i++;
  }
}

template <class... Args>
void run_grid(void (*kernel)(Args...), dim3 size, dim3 of_cluster, int threads, void** values) {
  grid = size, n_threads.x = threads;
  body = [=] { call(kernel, values, std::index_sequence_for<Args...>()); };
  for (int z = 0; z < size.z; z += of_cluster.z)
    for (int y = 0; y < size.y; y += of_cluster.y)
      for (int x = 0; x < size.x; x += of_cluster.x) {
        for (int i = 0; i < of_cluster.x * of_cluster.y * of_cluster.z; i++) {
          Block* block = new Block;
          block->at = {x + i % of_cluster.x, y + i / of_cluster.x % of_cluster.y, z + i / of_cluster.x / of_cluster.y};
          memset(block->shared, 0xFF, SHARED);  // NaN
          cluster.push_back(block);
          for (int t = 0; t < threads; t++) fibres.push_back(new Fibre{{}, {}, block, t, (int)fibres.size()});
        }
        run_cluster();
        for (Fibre* f : fibres) delete f;
        for (Block* b : cluster) delete b;
        fibres.clear(), cluster.clear(), warps.clear(), copies.clear(), cluster_sync_point = {};
      }
}
