#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <ampkit/amp/script_issues.h>
#include <ampkit/export.h>

namespace ampkit {

/// Settings of a ScriptModule.
struct ScriptModuleOptions {
  /// Issues that are known and wanted: neither an error nor a warning.
  std::vector<ScriptIssue> accept = {};
  /// Warnings are errors too.
  bool strict = false;
};

/// A TorchScript module as a torch::nn::Module that trains as its original in
/// Python does: under Autocast, with GradScaler, any optimizer, moving
/// averages, io::module_state() and checkpoints.
///
///     auto model = ampkit::load_script_module("model.pt", torch::kCPU);
///     model->train();
///     ampkit::optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
///     {
///       ampkit::Autocast autocast(torch::kCPU, torch::kBFloat16);
///       loss = at::mse_loss(model->forward(x), y);
///     }
///
/// Parameters and buffers are registered under the names, and in the order, of
/// Python's state_dict(), in modules named by their type ("BatchNorm2d"); they
/// are the tensors that the script uses. Non-persistent buffers are among them:
/// TorchScript does not know the difference.
///
/// Calls run without LibTorch's graph optimizations, on the calling thread
/// only: optimized, a graph keeps the dtypes of its first runs, fails in
/// backward under another autocast dtype, and casts by lists of its own.
/// Unoptimized, every op goes through the dispatcher, as in eager mode.
/// Not thread-safe. See docs/torchscript.md.
class AMPKIT_API ScriptModule : public torch::nn::Module {
 public:
  /// Copies `module`, so that no graph optimized by earlier runs is left.
  /// requires_grad, modes and ties stay.
  ///
  /// Throws c10::Error that lists all issues that are refused; warns of the
  /// others.
  explicit ScriptModule(
      const torch::jit::Module& module,
      const ScriptModuleOptions& options = {});
  ~ScriptModule() override;
  ScriptModule(const ScriptModule&) = delete;
  ScriptModule& operator=(const ScriptModule&) = delete;
  ScriptModule(ScriptModule&&) = delete;
  ScriptModule& operator=(ScriptModule&&) = delete;

  /// The script's forward() of one tensor. Throws c10::Error if it returns
  /// anything but a tensor.
  at::Tensor forward(const at::Tensor& input);

  /// Any method of the script with any arguments.
  c10::IValue call(
      std::vector<c10::IValue> inputs, const std::string& method = "forward");

  /// As those of torch::nn::Module, but each tensor once, under its first name,
  /// as in Python; a plain loop over the others' would use tied weights twice.
  std::vector<at::Tensor> parameters(bool recurse = true) const;
  torch::OrderedDict<std::string, at::Tensor> named_parameters(
      bool recurse = true) const;

  /// Switches the script too. A loaded module is in the mode in which it was
  /// saved.
  void train(bool on = true) override;

  /// Move parameters and buffers and cast the floating-point ones: unlike those
  /// of torch::nn::Module they leave integers as they are. Constants stay where
  /// they were loaded to.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false)
      override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

  /// Writes the script with its present weights, for torch.jit.load().
  void save_script(const std::string& path) const;

  /// What find_script_issues() found, accepted or not.
  const std::vector<ScriptFinding>& findings() const { return findings_; }

 private:
  friend AMPKIT_API std::shared_ptr<ScriptModule> load_script_module(
      const std::string& path,
      c10::Device device,
      const ScriptModuleOptions& options);
  struct Script;

  ScriptModule(
      std::unique_ptr<Script> script, const ScriptModuleOptions& options);

  std::unique_ptr<Script> script_;
  std::vector<ScriptFinding> findings_;
};

/// Reads a file of torch.jit.save() with all its tensors to `device`.
///
/// Throws c10::Error if the file cannot be read as TorchScript, and as the
/// constructor of ScriptModule does.
AMPKIT_API std::shared_ptr<ScriptModule> load_script_module(
    const std::string& path,
    c10::Device device = c10::kCPU,
    const ScriptModuleOptions& options = {});

} // namespace ampkit
