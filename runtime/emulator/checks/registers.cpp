// The finding about registers of a wgmma.
#include "checks/registers.hpp"

#include <fmt/format.h>

#include "core/kernel.hpp"
#include "core/unfenced.hpp"
#include "ptx/source.hpp"

namespace mxfa::emulator {

void Registers::issue(Warp& warp, const AsyncWork& work, std::span<const Touch>) {
  if (work.kind != AsyncKind::Wgmma) return;
  const Program& program = *warp.cta->cluster->grid->kernel->program;
  const std::optional<UnfencedAccess> access = UnfencedAccess::of(program.code[warp.pc].imm);
  if (!access) return;
  // A compiler may move a copy or a conversion of a register behind the fence that the source puts after it;
  // ptxas sees to these.  A fence that is older than the last commit_group is none for this wgmma.
  const bool error = access->stale || mode_ == CheckMode::Strict;
  findings_.add("missing-wgmma-fence", error ? Severity::Error : Severity::Advice, warp.pc,
                static_cast<uint32_t>(access->position), [&] {
                  const std::string first =
                      access->position < 0
                          ? "  nothing: this is the first wgmma of the kernel"
                          : fmt::format("  access\n      PTX line {}: {}",
                                        program.source->line(static_cast<uint32_t>(access->position)),
                                        program.ptx_text(static_cast<uint32_t>(access->position)));
                  return fmt::format(
                      "  registers of cta {} warp {}: accumulator or A of a wgmma\n{}\n{}\n  missing: no "
                      "wgmma.fence on a path from the access to the wgmma\n  remedy: "
                      "wgmma.fence.sync.aligned by the warpgroup before its wgmmas, after the last access to "
                      "their registers",
                      warp.cta->rank, warp.index, first, describe_site(program, "wgmma", Site::of(warp)));
                });
}

}  // namespace mxfa::emulator
