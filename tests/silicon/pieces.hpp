// Pieces of PTX that several programs share.  Every wait is bounded: a phase that does not end leaves a mark
// in the answer instead of a hung device.
#pragma once

#include <fmt/format.h>

#include <string>

namespace mxfa::silicon {

inline const std::string kGate = "  .shared .align 8 .b64 gate;\n  mov.u32 %r80, gate;\n";
inline const std::string kFirst = "  setp.eq.u32 %p18, %thread, 0;\n";
inline const std::string kInit1 = kGate + kFirst +
                                  "  @%p18 mbarrier.init.shared::cta.b64 [%r80], 1;\n"
                                  "  fence.mbarrier_init.release.cluster;\n  bar.sync 0;\n";
inline const std::string kClusterSync =
    "  barrier.cluster.arrive.release;\n  barrier.cluster.wait.acquire;\n";
inline const std::string kDynamic = ".extern .shared .align 1024 .b8 dynamic[];\n";

// Waits for a parity, at most 2000 times 20 us; then writes the mark over the first word of the answer.
// `name` makes the label unique.  Uses %r190, %p30, %p31.
inline std::string bounded_wait(const std::string& barrier, int parity, const std::string& name) {
  return fmt::format(
      "  mov.u32 %r190, 0;\nwait_{0}:\n  mbarrier.try_wait.parity.shared::cta.b64 %p30, [{1}], {2}, 20000;\n"
      "  add.u32 %r190, %r190, 1;\n  setp.lt.and.u32 %p31, %r190, 2000, !%p30;\n  @%p31 bra wait_{0};\n"
      "  @!%p30 st.global.u32 [%out], 0xdeadbeef;\n",
      name, barrier, parity);
}

}  // namespace mxfa::silicon
