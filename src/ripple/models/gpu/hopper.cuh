// Building blocks of the Hopper kernels: barriers, bulk copies (TMA), clusters, warpgroup products (wgmma). All PTX
// is in this file. hopper.py puts it before each source; tests replace it by a file that does the same on a CPU.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define INLINE __device__ __forceinline__

struct alignas(64) TensorMap { char opaque[128]; };

// -- shared memory: 32-bit addresses; a block's own, or the same offset in another block of its cluster -----------

INLINE u32 shared_memory() {  // swizzled tiles lie at multiples of 1,024
  extern __shared__ __align__(1024) char memory[];
  return (u32)__cvta_generic_to_shared(memory);
}

INLINE void write_shared(u32 at, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(v.x), "f"(v.y) : "memory");
}

INLINE void write_shared(u32 at, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

INLINE u32 cluster_address(u32 at, u32 block) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
  return there;
}

INLINE float2 read_cluster_float2(u32 at, u32 block) {
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(cluster_address(at, block)));
  return v;
}

INLINE float4 read_cluster_float4(u32 at, u32 block) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(cluster_address(at, block)));
  return v;
}

// -- barriers -----------------------------------------------------------------------------------------------------

INLINE void barrier_init(u32 at, u32 n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(n_arrivals));
}

INLINE void fence_barrier_init() {  // after the last barrier_init, before other threads use them
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

INLINE void barrier_expect(u32 at, u32 n_bytes) {  // arrive, and add so many copied bytes to what it waits for
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(n_bytes) : "memory");
}

INLINE void barrier_arrive(u32 at, u32 block) {  // no .release.cluster: its fence covers all of the GPU's memory
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address(at, block)) : "memory");
}

INLINE void barrier_wait(u32 at, u32 phase) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;"
      "  @p bra done; bra again; done: }" ::"r"(at), "r"(phase) : "memory");
}

INLINE void sync_threads(u32 number, u32 n_threads) {  // a subset of a block; barrier 0 belongs to __syncthreads
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(n_threads) : "memory");
}

INLINE void cluster_barrier() {  // execution only, no memory ordering
  asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait;" ::: "memory");
}

INLINE void cluster_sync() {  // with memory ordering: writes before it are visible after it
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}

// -- bulk copies of boxes into swizzled tiles, completed on a barrier ------------------------------------------------

constexpr u64 READ_ONCE = 0x12F0000000000000ull, READ_OFTEN = 0x14F0000000000000ull;  // cache policies

INLINE void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

INLINE void tma_copy(u32 to, const TensorMap& map, int c0, int c1, int c2, int c3, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to), "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3),
      "r"(barrier), "l"(policy) : "memory");
}

INLINE void tma_copy(u32 to, const TensorMap& map, int c0, int c1, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(&map), "r"(c0), "r"(c1), "r"(barrier), "l"(policy)
      : "memory");
}

// -- warpgroup products: asynchronous, committed in groups -----------------------------------------------------------

INLINE u64 k_major_tile(u32 at) {  // descriptor of a K-major tile; 8 lines are 1,024 bytes
  return (u64)((at & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

INLINE u64 mn_major_tile(u32 at, u32 next_line) {  // of an MN-major tile: lines of 64 columns
  return (u64)((at & 0x3FFFF) >> 4) | ((u64)(next_line >> 4) << 16) | (64ull << 32) | (1ull << 62);
}

INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int LEFT>
INLINE void wgmma_wait() {  // until at most LEFT groups are in flight
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

INLINE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int N>
INLINE void raise_register_limit() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

template <int N>
INLINE void lower_register_limit() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// -- arithmetic -----------------------------------------------------------------------------------------------------

INLINE u32 pack_bf16(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

INLINE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
