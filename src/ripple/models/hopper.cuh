// What the kernels for Hopper GPUs here are made of: barriers, bulk copies, clusters, products. All PTX is in this
// file. hopper.py puts it before each source; tests put one before them that does the same on a CPU.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define INLINE __device__ __forceinline__

struct alignas(64) TensorMap { char opaque[128]; };

// -- shared memory: addresses are 32-bit numbers; a block's own, or the same place in another of its cluster ------

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

INLINE u32 in_block(u32 at, u32 block) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
  return there;
}

INLINE float2 read_two(u32 at, u32 block) {
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(in_block(at, block)));
  return v;
}

INLINE float4 read_four(u32 at, u32 block) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(in_block(at, block)));
  return v;
}

// -- waiting ------------------------------------------------------------------------------------------------------

INLINE void barrier_init(u32 at, u32 n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(n_arrivals));
}

INLINE void barriers_ready() {  // after the last barrier_init, before others use them
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

INLINE void barrier_expect(u32 at, u32 n_bytes) {  // arrive, and let it wait for so many copied bytes
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(n_bytes) : "memory");
}

INLINE void barrier_arrive(u32 at, u32 block) {  // without .release.cluster, which would wait for the whole GPU's memory
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(in_block(at, block)) : "memory");
}

INLINE void barrier_wait(u32 at, u32 phase) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;"
      "  @p bra done; bra again; done: }" ::"r"(at), "r"(phase) : "memory");
}

INLINE void sync_threads(u32 number, u32 n_threads) {  // some of a block; number 0 is __syncthreads'
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(n_threads) : "memory");
}

INLINE void meet_cluster() {  // nobody goes on before all are here
  asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait;" ::: "memory");
}

INLINE void sync_cluster() {  // and everyone sees what the others have written
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}

// -- bulk copies of boxes into swizzled tiles, told to a barrier -----------------------------------------------------

constexpr u64 READ_ONCE = 0x12F0000000000000ull, READ_OFTEN = 0x14F0000000000000ull;  // cache policies

INLINE void copies_of(const TensorMap& map) {  // will be asked for
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

INLINE void copy(u32 to, const TensorMap& map, int c0, int c1, int c2, int c3, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to), "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3),
      "r"(barrier), "l"(policy) : "memory");
}

INLINE void copy(u32 to, const TensorMap& map, int c0, int c1, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(&map), "r"(c0), "r"(c1), "r"(barrier), "l"(policy)
      : "memory");
}

// -- products: asynchronous, by warpgroups, in batches ---------------------------------------------------------------

INLINE u64 matrix(u32 at) {  // lines along the inner dimension; 8 of them are 1,024 bytes
  return (u64)((at & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

INLINE u64 upright(u32 at, u32 next_line) {  // lines across it, 64 columns each; the next 64 so many bytes further on
  return (u64)((at & 0x3FFFF) >> 4) | ((u64)(next_line >> 4) << 16) | (64ull << 32) | (1ull << 62);
}

INLINE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

INLINE void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int LEFT>
INLINE void products_wait() {  // until only so many batches are in flight
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

INLINE void written_for_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int N>
INLINE void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

template <int N>
INLINE void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// -- numbers ------------------------------------------------------------------------------------------------------------

INLINE u32 bf16_pair(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

INLINE float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
