// Clusters: special registers, shared-window addresses, distributed shared memory, asynchronous writes to a
// peer.
#include "operands.hpp"
#include "pieces.hpp"

namespace mxfa::silicon {
namespace {

void add(Programs& programs, const std::string& name, const Kernel& kernel, size_t out,
         Agreement agreement = {}, const Words& in = {}) {
  programs.push_back(
      {"clusters/" + name, [=](Machine& machine) { return machine.run(kernel, in, out); }, agreement});
}

std::string store_registers(const std::vector<std::string>& names, const std::string& index,
                            const std::string& moves = "") {
  std::string text = moves + fmt::format("  mad.wide.u32 %w10, {}, {}, %out;\n", index, 4 * names.size());
  int offset = 0;
  for (const std::string& name : names) {
    text += name[1] == 'r' && name[2] >= '0' && name[2] <= '9'
                ? fmt::format("  st.global.b32 [%w10+{}], {};\n", offset, name)
                : fmt::format("  mov.u32 %r99, {};\n  st.global.b32 [%w10+{}], %r99;\n", name, offset);
    offset += 4;
  }
  return text;
}

const std::string kLinear =
    "  mov.u32 %r1, %ctaid.x;\n  mov.u32 %r2, %ctaid.y;\n  mov.u32 %r3, %ctaid.z;\n  mov.u32 %r4, "
    "%nctaid.x;\n"
    "  mov.u32 %r5, %nctaid.y;\n  mad.lo.u32 %r2, %r3, %r5, %r2;\n  mad.lo.u32 %r98, %r2, %r4, %r1;\n";

void add_registers(Programs& programs) {
  const std::vector<std::string> names = {"%ctaid.x",          "%ctaid.y",          "%ctaid.z",
                                          "%clusterid.x",      "%clusterid.y",      "%clusterid.z",
                                          "%nclusterid.x",     "%nclusterid.y",     "%nclusterid.z",
                                          "%cluster_ctaid.x",  "%cluster_ctaid.y",  "%cluster_ctaid.z",
                                          "%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z",
                                          "%cluster_ctarank",  "%cluster_nctarank", "%r97"};
  const std::string moves = "  mov.pred %p1, %is_explicit_cluster;\n  selp.u32 %r97, 1, 0, %p1;\n" + kLinear;
  struct Shape {
    const char* name;
    const char* cluster;
    unsigned x, y, z;
  };
  for (const Shape& s :
       {Shape{"none", "", 3, 2, 2}, Shape{"2x2x1", "2, 2, 1", 4, 4, 2}, Shape{"1x2x4", "1, 2, 4", 2, 4, 8},
        Shape{"8x1x1", "8, 1, 1", 16, 1, 1}, Shape{"3x1x2", "3, 1, 2", 6, 2, 2}})
    add(programs, std::string("registers.") + s.name,
        {.body = store_registers(names, "%r98", moves),
         .threads = 1,
         .ctas = s.x,
         .cluster = s.cluster,
         .ctas_y = s.y,
         .ctas_z = s.z},
        names.size() * s.x * s.y * s.z);
}

void add_addresses(Programs& programs) {
  // Where static and dynamic shared memory start, in the 32-bit window.
  const std::string declare = "  .shared .align 4 .b8 first[36];\n  .shared .align 128 .b8 second[256];\n";
  const std::string look =
      "  mov.u32 %r10, first;\n  mov.u32 %r11, second;\n  mov.u32 %r13, %total_smem_size;\n"
      "  mov.u32 %r14, %dynamic_smem_size;\n  mov.u32 %r15, %aggr_smem_size;\n";
  const std::vector<std::string> four = {"%r10", "%r11", "%r13", "%r14", "%r15"};
  add(programs, "shared_offsets.static", {declare + look + store_registers(four, "%thread"), 1}, 5);
  add(programs, "shared_offsets.dynamic",
      {.body = "  mov.u32 %r10, dynamic;\n  mov.u32 %r13, %total_smem_size;\n  mov.u32 %r14, "
               "%dynamic_smem_size;\n"
               "  mov.u32 %r15, %aggr_smem_size;\n" +
               store_registers({"%r10", "%r13", "%r14", "%r15"}, "%thread"),
       .threads = 1,
       .declarations = kDynamic,
       .dynamic_shared = 5000},
      4);
  add(programs, "shared_offsets.both",
      {.body = declare + look + "  mov.u32 %r12, dynamic;\n" +
               store_registers({"%r10", "%r11", "%r12", "%r13", "%r14", "%r15"}, "%thread"),
       .threads = 1,
       .declarations = ".extern .shared .align 16 .b8 dynamic[];\n",
       .dynamic_shared = 3000},
      6);
  add(programs, "shared_offsets.reserved",
      {store_registers({"%reserved_smem_offset_begin", "%reserved_smem_offset_end",
                        "%reserved_smem_offset_cap", "%reserved_smem_offset_0", "%reserved_smem_offset_1"},
                       "%thread"),
       1},
      5);
  // mapa for every rank, and back.
  const std::string alone = "  .shared .align 128 .b8 second[256];\n";
  std::string body =
      alone + kLinear + "  mov.u32 %r10, second;\n  cvt.u64.u32 %w1, %r10;\n  cvta.shared.u64 %w1, %w1;\n";
  std::vector<std::string> names = {"%r10"};
  for (int rank = 0; rank < 4; ++rank) {
    body += fmt::format(
        "  mapa.shared::cluster.u32 %r{0}, %r10, {2};\n  getctarank.shared::cluster.u32 %r{1}, %r{0};\n"
        "  mapa.u64 %w2, %w1, {2};\n  getctarank.u64 %r{3}, %w2;\n  sub.u64 %w3, %w2, %w1;\n  mov.b64 "
        "{{%r{4}, %r{5}}}, "
        "%w3;\n  cvta.to.shared.u64 %w4, %w2;\n  cvt.u32.u64 %r{6}, %w4;\n",
        20 + rank * 6, 21 + rank * 6, rank, 22 + rank * 6, 23 + rank * 6, 24 + rank * 6, 25 + rank * 6);
    for (int i = 0; i < 6; ++i) names.push_back(fmt::format("%r{}", 20 + rank * 6 + i));
  }
  body += "  getctarank.shared::cluster.u32 %r60, %r10;\n  getctarank.u64 %r61, %w1;\n";
  names.push_back("%r60");
  names.push_back("%r61");
  add(programs, "mapa",
      {.body = body + store_registers(names, "%r98"), .threads = 1, .ctas = 4, .cluster = "4, 1, 1"},
      names.size() * 4);
  // Which space a generic address is in: own shared, a peer's, global, local, and a number.
  body = "  .local .align 8 .b64 stack[2];\n" + alone + kLinear +
         "  mov.u32 %r10, second;\n  cvt.u64.u32 %w1, %r10;\n  cvta.shared.u64 %w1, %w1;\n  xor.b32 %r11, "
         "%r98, 1;\n"
         "  mapa.u64 %w2, %w1, %r11;\n  mov.u64 %w3, %in;\n  mov.u64 %w5, stack;\n  cvta.local.u64 %w4, "
         "%w5;\n  mov.u64 "
         "%w5, 64;\n";
  names.clear();
  for (int a = 1; a <= 5; ++a) {
    body += fmt::format("  mov.u32 %r{}, 0;\n", 19 + a);
    int bit = 1;
    for (const char* space : {"shared", "shared::cta", "shared::cluster", "global", "local"}) {
      body += fmt::format("  isspacep.{} %p1, %w{};\n  @%p1 or.b32 %r{}, %r{}, {};\n", space, a, 19 + a,
                          19 + a, bit);
      bit *= 2;
    }
    names.push_back(fmt::format("%r{}", 19 + a));
  }
  add(programs, "isspacep",
      {.body = body + store_registers(names, "%r98"), .threads = 1, .ctas = 2, .cluster = "2, 1, 1"},
      names.size() * 2);
  add(programs, "window_bases",
      {"  mov.u64 %w1, 0;\n  cvta.shared.u64 %w2, %w1;\n  cvta.local.u64 %w3, %w1;\n  st.global.v2.b64 "
       "[%out], {%w2, %w3};\n",
       1},
      4, {Agreement::Kind::Recorded});
}

void add_exchange(Programs& programs) {
  // Each of 4 CTAs adds to every CTA's counter through both kinds of address and reads its neighbour's
  // vector.
  add(programs, "distributed_shared_memory",
      {.body =
           "  .shared .align 16 .b32 box[8];\n  mov.u32 %r1, %cluster_ctarank;\n  mov.u32 %r2, box;\n" +
           kFirst +
           "  @%p18 st.shared.u32 [%r2], 0;\n  mad.lo.u32 %r3, %r1, 10, 1;\n  add.u32 %r4, %r3, 1;\n"
           "  add.u32 %r5, %r3, 2;\n  @%p18 st.shared.v4.u32 [%r2+16], {%r1, %r3, %r4, %r5};\n" +
           kClusterSync +
           "  add.u32 %r6, %r1, 1;\n  mov.u32 %r7, 0;\nnext:\n  mapa.shared::cluster.u32 %r8, %r2, %r7;\n"
           "  @%p18 red.shared::cluster.add.u32 [%r8], %r6;\n  cvt.u64.u32 %w1, %r2;\n  cvta.shared.u64 %w1, "
           "%w1;\n"
           "  mapa.u64 %w2, %w1, %r7;\n  @%p18 atom.add.u32 %r9, [%w2], 16;\n  add.u32 %r7, %r7, 1;\n"
           "  setp.lt.u32 %p1, %r7, 4;\n  @%p1 bra next;\n" +
           kClusterSync +
           "  add.u32 %r7, %r1, 1;\n  and.b32 %r7, %r7, 3;\n  mapa.shared::cluster.u32 %r8, %r2, %r7;\n"
           "  ld.shared::cluster.v4.u32 {%r10, %r11, %r12, %r13}, [%r8+16];\n  ld.shared.u32 %r14, [%r2];\n"
           "  mad.wide.u32 %w3, %cta, 20, %out;\n  @%p18 st.global.u32 [%w3], %r14;\n  @%p18 st.global.u32 "
           "[%w3+4], "
           "%r10;\n  @%p18 st.global.u32 [%w3+8], %r11;\n  @%p18 st.global.u32 [%w3+12], %r12;\n"
           "  @%p18 st.global.u32 [%w3+16], %r13;\n" +
           kClusterSync,
       .ctas = 8,
       .cluster = "4, 1, 1"},
      40);
  // Stores of every width into the neighbour, then each CTA shows its own memory.
  add(programs, "remote_stores",
      {.body = "  .shared .align 16 .b8 box[512];\n  mov.u32 %r1, %cluster_ctarank;\n  mov.u32 %r2, box;\n"
               "  mad.lo.u32 %r3, %lane, 16, %r2;\n  mov.u32 %r4, 0xeeeeeeee;\n  st.shared.v4.b32 [%r3], "
               "{%r4, %r4, %r4, "
               "%r4};\n" +
               kClusterSync +
               "  xor.b32 %r5, %r1, 1;\n  mapa.shared::cluster.u32 %r6, %r2, %r5;\n  mad.lo.u32 %r7, %lane, "
               "4, %r6;\n"
               "  mad.lo.u32 %r8, %r1, 1000, %lane;\n  st.shared::cluster.u32 [%r7], %r8;\n  cvt.u16.u32 "
               "%h1, %r8;\n"
               "  mad.lo.u32 %r7, %lane, 2, %r6;\n  st.shared::cluster.u16 [%r7+128], %h1;\n  add.u32 %r7, "
               "%r6, %lane;\n"
               "  st.shared::cluster.u8 [%r7+192], %h1;\n  mad.lo.u32 %r7, %lane, 8, %r6;\n"
               "  st.shared::cluster.v2.u32 [%r7+256], {%r8, %r1};\n" +
               kClusterSync +
               "  ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r3];\n  mad.lo.u32 %r9, %cta, 32, %lane;\n"
               "  mad.wide.u32 %w3, %r9, 16, %out;\n  st.global.v4.b32 [%w3], {%r10, %r11, %r12, %r13};\n",
       .ctas = 2,
       .cluster = "2, 1, 1"},
      256);
  add(programs, "st.async",
      {.body = "  .shared .align 16 .b32 box[16];\n  mov.u32 %r1, %cluster_ctarank;\n  mov.u32 %r2, box;\n" +
               kInit1 +
               "  mad.lo.u32 %r3, %thread, 4, %r2;\n  setp.lt.u32 %p4, %thread, 16;\n  @%p4 st.shared.u32 "
               "[%r3], 100;\n"
               "  setp.eq.u32 %p1, %r1, 0;\n  and.pred %p2, %p1, %p18;\n"
               "  @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 48;\n" +
               kClusterSync +
               "  mov.u32 %r3, 0;\n  mapa.shared::cluster.u32 %r4, %r2, %r3;\n  mapa.shared::cluster.u32 "
               "%r5, %r80, %r3;\n"
               "  setp.ne.u32 %p3, %r1, 0;\n  and.pred %p3, %p3, %p18;\n  mov.b64 %w1, 0x1122334455667788;\n"
               "  mov.u32 %r6, 5;\n  mov.u32 %r7, 0xfffffff0;\n"
               "  @%p3 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r4], %w1, [%r5];\n"
               "  @%p3 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r4+16], {%r6, "
               "%r7, %r1, %r6}, "
               "[%r5];\n"
               "  @%p3 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r4+32], %r6, [%r5];\n"
               "  @%p3 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
               "[%r4+40], %r6, "
               "[%r5];\n"
               "  @%p3 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.s32 "
               "[%r4+44], %r7, "
               "[%r5];\n"
               "  @%p3 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.u32 "
               "[%r4+48], %r7, "
               "[%r5];\n"
               "  @%p3 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.xor.b32 "
               "[%r4+52], %r6, "
               "[%r5];\n"
               "  @%p3 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 "
               "[%r4+56], %r6, "
               "[%r5];\n  @!%p1 bra done;\n" +
               bounded_wait("%r80", 0, "data") +
               "  mad.lo.u32 %r3, %thread, 4, %r2;\n  mad.wide.u32 %w3, %thread, 4, %out;\n  @%p4 "
               "ld.shared.u32 %r8, "
               "[%r3];\n  @%p4 st.global.u32 [%w3], %r8;\ndone:\n" +
               kClusterSync,
       .ctas = 2,
       .cluster = "2, 1, 1"},
      16);
  // Both CTAs arrive at rank 0's barrier of count 3; the third arrival is local.
  add(programs, "remote_arrive",
      {.body = kGate + kFirst +
               "  @%p18 mbarrier.init.shared::cta.b64 [%r80], 5;\n  fence.mbarrier_init.release.cluster;\n" +
               kClusterSync +
               "  mov.u32 %r1, 0;\n  mapa.shared::cluster.u32 %r2, %r80, %r1;\n"
               "  @%p18 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2], 2;\n" +
               kClusterSync +
               "  mov.u32 %r3, %cluster_ctarank;\n  setp.ne.u32 %p2, %r3, 0;\n  @%p2 bra done;\n  @!%p18 bra "
               "done;\n"
               "  mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r80], 0;\n  selp.u32 %r4, 1, 0, %p3;\n"
               "  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n  mbarrier.pending_count.b64 %r5, %w1;\n" +
               bounded_wait("%r80", 0, "all") + "  st.global.v2.u32 [%out], {%r4, %r5};\ndone:\n" +
               kClusterSync,
       .ctas = 2,
       .cluster = "2, 1, 1"},
      2);
}

}  // namespace

void add_clusters(Programs& programs) {
  add_registers(programs);
  add_addresses(programs);
  add_exchange(programs);
}

}  // namespace mxfa::silicon
