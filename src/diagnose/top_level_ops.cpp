#include "diagnose/top_level_ops.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <c10/util/Exception.h>

#include <ampkit/amp/op_policy.h>

namespace ampkit::diagnose {
namespace {

// Of the calling thread, which has one collector at a time.
struct SeenOps {
  int depth = 0;
  std::vector<std::string> order;
  std::set<std::string, std::less<>> names;
};

SeenOps& seen_ops() {
  thread_local SeenOps seen;
  return seen;
}

std::unique_ptr<at::ObserverContext> note_op(const at::RecordFunction& op) {
  auto& seen = seen_ops();
  if (seen.depth++ == 0 && op.scope() == at::RecordScope::FUNCTION) {
    constexpr std::string_view kAten = "aten::";
    std::string_view name = op.name();
    if (name.starts_with(kAten)) {
      name.remove_prefix(kAten.size());
    }
    if (!seen.names.contains(name)) {
      seen.names.emplace(name);
      seen.order.emplace_back(name);
    }
  }
  return nullptr;
}

void leave_op(const at::RecordFunction& /*op*/, at::ObserverContext* /*none*/) {
  --seen_ops().depth;
}

bool can_be_decided(const std::string& op) {
  try {
    OpPolicy().set(op, OpRule::float32);
    return true;
  } catch (const c10::ValueError&) {
    return false; // in place, without tensors, or no op at all
  }
}

} // namespace

TopLevelOps::TopLevelOps(std::vector<std::string>& names) : names_(names) {
  TORCH_CHECK(
      seen_ops().order.empty(),
      "TopLevelOps: this thread has a collector already");
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(note_op, leave_op)
          .scopes(
              {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

TopLevelOps::~TopLevelOps() {
  at::removeCallback(handle_);
  auto& seen = seen_ops();
  for (const std::string& op : seen.order) {
    if (can_be_decided(op) &&
        std::find(names_.begin(), names_.end(), op) == names_.end()) {
      names_.push_back(op);
    }
  }
  seen = {};
}

} // namespace ampkit::diagnose
