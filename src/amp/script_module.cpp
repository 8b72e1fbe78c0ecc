#include <ampkit/amp/script_module.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include "amp/traced_convolutions.h"

namespace ampkit {
namespace {

// A buffer as registered, and where the script keeps it.
struct Buffer {
  std::string name;
  at::Tensor tensor;
  torch::jit::Module script;
  size_t slot;
};

// "BatchNorm2d" of "__torch__.torch.nn....___torch_mangle_3.BatchNorm2d".
std::string type_name(const torch::jit::Module& script) {
  const auto name = script.type()->name();
  return name ? name->name() : "Module";
}

void throw_unreadable(const std::string& what, const std::string& error) {
  TORCH_CHECK(
      false,
      what,
      "; it must be what torch.jit.save() writes, not optimized for "
      "inference: ",
      error);
}

} // namespace

struct ScriptModule::Script {
  explicit Script(torch::jit::Module script) : module(std::move(script)) {
    restore_convolutions(module);
  }

  // `read`: a torch::jit::Module; `what`: of the error, if it cannot be read.
  template <class Read>
  static std::unique_ptr<Script> read(const std::string& what, Read read) {
    try {
      return std::make_unique<Script>(read());
    } catch (const c10::Error& error) {
      throw_unreadable(what, error.msg());
    } catch (const std::exception& error) { // what else TorchScript throws
      throw_unreadable(what, error.what());
    }
    return nullptr;
  }

  static std::unique_ptr<Script> copy(const torch::jit::Module& original) {
    return read("ScriptModule: cannot copy the module", [&] {
      std::stringstream stream;
      original.save(stream);
      return torch::jit::load(stream);
    });
  }

  void register_members(
      torch::nn::Module& holder, const torch::jit::Module& script);
  void follow_buffers();

  torch::jit::Module module;
  std::vector<Buffer> buffers;
};

void ScriptModule::Script::register_members(
    torch::nn::Module& holder, const torch::jit::Module& script) {
  const auto type = script.type();
  for (size_t i = 0; i < type->numAttributes(); ++i) {
    const auto& name = type->getAttributeName(i);
    const auto& value = script._ivalue()->getSlot(i);
    if (type->is_parameter(i) && value.isTensor()) {
      const auto& tensor = value.toTensor();
      holder.register_parameter(name, tensor, tensor.requires_grad());
    } else if (type->is_buffer(i) && value.isTensor()) {
      holder.register_buffer(name, value.toTensor());
      buffers.push_back({name, value.toTensor(), script, i});
    }
  }
  for (const auto& child : script.named_children()) {
    const auto part =
        std::make_shared<torch::nn::Module>(type_name(child.value));
    register_members(*part, child.value);
    holder.register_module(child.name, part);
  }
}

// A script may put another tensor in the place of a buffer, as batch norms of
// old PyTorch versions do with num_batches_tracked. Checkpoints and averages
// hold the registered one: it takes the values, and the script takes it back.
void ScriptModule::Script::follow_buffers() {
  for (const Buffer& buffer : buffers) {
    const auto& slot = buffer.script._ivalue()->getSlot(buffer.slot);
    if (slot.isTensor() && slot.toTensor().is_same(buffer.tensor)) {
      continue;
    }
    TORCH_CHECK(
        slot.isTensor() && !slot.toTensor().requires_grad() &&
            slot.toTensor().sizes() == buffer.tensor.sizes() &&
            slot.toTensor().scalar_type() == buffer.tensor.scalar_type(),
        "ScriptModule::call: the script replaced buffer ",
        buffer.name,
        ", ",
        buffer.tensor.scalar_type(),
        " ",
        buffer.tensor.sizes(),
        ", by something of another shape or dtype, or with gradient history; "
        "write it in place");
    buffer.tensor.copy_(slot.toTensor());
    buffer.script._ivalue()->setSlot(buffer.slot, buffer.tensor);
  }
}

ScriptModule::ScriptModule(
    const torch::jit::Module& module, const ScriptModuleOptions& options)
    : ScriptModule(Script::copy(module), options) {}

ScriptModule::ScriptModule(
    std::unique_ptr<Script> script, const ScriptModuleOptions& options)
    : torch::nn::Module(type_name(script->module)),
      script_(std::move(script)),
      findings_(find_script_issues(script_->module)) {
  std::ostringstream refused;
  std::vector<std::string> warnings;
  for (const auto& [issue, is_refused, message] : findings_) {
    const auto& accept = options.accept;
    if (std::find(accept.begin(), accept.end(), issue) != accept.end()) {
      continue;
    }
    if (is_refused || options.strict) {
      refused << "\n  " << to_string(issue) << ": " << message;
    } else {
      warnings.push_back(to_string(issue) + ": " + message);
    }
  }
  TORCH_CHECK(
      refused.view().empty(),
      "ScriptModule: ",
      name(),
      " would not train as it does in Python:",
      refused.str());
  for (const auto& warning : warnings) {
    TORCH_WARN("ScriptModule: ", name(), ": ", warning);
  }
  script_->register_members(*this, script_->module);
  torch::nn::Module::train(script_->module.is_training());
}

ScriptModule::~ScriptModule() = default;

at::Tensor ScriptModule::forward(const at::Tensor& input) {
  const auto result = call({input});
  TORCH_CHECK(
      result.isTensor(),
      "ScriptModule::forward: the script returned a ",
      result.tagKind(),
      ", not a tensor; use call()");
  return result.toTensor();
}

c10::IValue ScriptModule::call(
    std::vector<c10::IValue> inputs, const std::string& method) {
  // Of this thread, and for the methods called from within too.
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  auto result = script_->module.get_method(method)(std::move(inputs));
  script_->follow_buffers();
  return result;
}

std::vector<at::Tensor> ScriptModule::parameters(bool recurse) const {
  return named_parameters(recurse).values();
}

torch::OrderedDict<std::string, at::Tensor> ScriptModule::named_parameters(
    bool recurse) const {
  torch::OrderedDict<std::string, at::Tensor> result;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& item : torch::nn::Module::named_parameters(recurse)) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) {
      result.insert(item.key(), item.value());
    }
  }
  return result;
}

void ScriptModule::train(bool on) {
  torch::nn::Module::train(on);
  script_->module.train(on);
}

void ScriptModule::to(
    torch::Device device, torch::Dtype dtype, bool non_blocking) {
  to(device, non_blocking);
  to(dtype, non_blocking);
}

void ScriptModule::to(torch::Dtype dtype, bool non_blocking) {
  const auto cast = [&](at::Tensor& tensor) {
    if (tensor.is_floating_point()) {
      tensor.set_data(tensor.to(dtype, non_blocking));
    }
  };
  for (auto& item : named_parameters()) {
    cast(item.value());
  }
  for (auto& item : named_buffers()) {
    cast(item.value());
  }
}

void ScriptModule::to(torch::Device device, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
}

void ScriptModule::save_script(const std::string& path) const {
  script_->module.save(path);
}

std::shared_ptr<ScriptModule> load_script_module(
    const std::string& path,
    c10::Device device,
    const ScriptModuleOptions& options) {
  auto script = ScriptModule::Script::read(
      "load_script_module: cannot read " + path,
      [&] { return torch::jit::load(path, device); });
  // The constructor is private.
  return std::shared_ptr<ScriptModule>(
      new ScriptModule(std::move(script), options));
}

} // namespace ampkit
