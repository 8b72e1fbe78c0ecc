#include <ampkit/diagnose/bisect.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <ampkit/io/rng_state.h>

#include "diagnose/top_level_ops.h"

namespace ampkit::diagnose {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_finite(const RunOutcome& outcome) {
  return std::all_of(
             outcome.losses.begin(),
             outcome.losses.end(),
             [](double loss) { return std::isfinite(loss); }) &&
         std::all_of(
             outcome.values.begin(),
             outcome.values.end(),
             [](const at::Tensor& value) {
               return !value.defined() || value.isfinite().all().item<bool>();
             });
}

double sum_of_squares(const at::Tensor& tensor) {
  return tensor.to(at::kDouble).square().sum().item<double>();
}

// |difference| / |reference|; a difference from nothing is 1.
double relative(double difference, double reference) {
  if (difference == 0) {
    return 0;
  }
  return reference == 0 ? 1 : difference / reference;
}

void check_same_length(const char* what, size_t found, size_t expected) {
  TORCH_CHECK(
      found == expected,
      "bisect_precision: the run in FP32 gave ",
      expected,
      " ",
      what,
      ", another one ",
      found,
      "; run() must do the same each time");
}

RunError error_of(const RunOutcome& outcome, const RunOutcome& reference) {
  check_same_length("losses", outcome.losses.size(), reference.losses.size());
  check_same_length("values", outcome.values.size(), reference.values.size());
  if (!is_finite(outcome)) {
    return {.finite = false, .loss = kNaN, .values = kNaN};
  }
  RunError error;
  for (size_t i = 0; i < outcome.losses.size(); ++i) {
    const double expected = reference.losses[i];
    error.loss = std::max(
        error.loss,
        relative(std::abs(outcome.losses[i] - expected), std::abs(expected)));
  }
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < outcome.values.size(); ++i) {
    const at::Tensor& expected = reference.values[i];
    if (expected.defined() && outcome.values[i].defined()) {
      difference += sum_of_squares(
          outcome.values[i].to(at::kDouble) - expected.to(at::kDouble));
      size += sum_of_squares(expected);
    }
  }
  error.values = relative(std::sqrt(difference), std::sqrt(size));
  return error;
}

// Modules with parameters of their own. A pattern stands for all below it too,
// so that containers come last: those are left out first.
std::vector<std::string> layers_of(const torch::nn::Module& module) {
  std::vector<std::string> layers;
  std::vector<std::string> containers;
  for (const auto& entry : ModulePolicy().bind(module).entries()) {
    if (!entry.path.empty()) {
      layers.push_back(entry.path);
    } else {
      containers.emplace_back("**");
    }
  }
  const auto all = layers;
  const auto first_container = std::stable_partition(
      layers.begin(), layers.end(), [&](const std::string& path) {
        return std::none_of(all.begin(), all.end(), [&](const auto& other) {
          return other.starts_with(path + ".");
        });
      });
  containers.insert(containers.begin(), first_container, layers.end());
  layers.erase(first_container, layers.end());
  layers.insert(layers.end(), containers.begin(), containers.end());
  return layers;
}

PrecisionPolicy with_layers(const std::vector<std::string>& layers) {
  PrecisionPolicy policy;
  for (const std::string& layer : layers) {
    policy.modules.set(layer, at::kFloat, "found by bisection");
  }
  return policy;
}

PrecisionPolicy with_ops(const std::vector<std::string>& ops) {
  PrecisionPolicy policy;
  for (const std::string& op : ops) {
    policy.ops.set(op, OpRule::float32, "found by bisection");
  }
  return policy;
}

class Bisector {
 public:
  Bisector(
      const torch::nn::Module& module,
      const PrecisionRun& run,
      const BisectOptions& options)
      : module_(module), run_(run), options_(options) {
    for (const auto& [name, bound] :
         {std::pair("loss", options.bounds.loss),
          std::pair("values", options.bounds.values)}) {
      TORCH_CHECK_VALUE(
          bound > 0,
          "bisect_precision: bounds.",
          name,
          " must be > 0, got ",
          bound);
    }
  }

  Bisection bisect() {
    reference_ = run_(options_.device, Precision::fp32(), {});
    TORCH_CHECK(
        is_finite(reference_),
        "bisect_precision: the run in FP32 is not finite either, so that "
        "precision is not the cause; a diagnose::Watch says where it begins");
    const auto layers =
        options_.layers.empty() ? layers_of(module_) : options_.layers;
    static_cast<void>(with_layers(layers).bind(module_)); // names that are not
    Bisection result;
    {
      const TopLevelOps ops(ops_);
      result.without = try_policy({});
    }
    result.layers = find_minimal_set(
        layers,
        [&](const auto& chosen) { return is_good(with_layers(chosen)); },
        options_.search);
    if (options_.search_ops && worth_more(result.layers.end)) {
      result.ops = find_minimal_set(
          candidate_ops(),
          [&](const auto& chosen) { return is_good(with_ops(chosen)); },
          {.interrupted = options_.search.interrupted});
    }
    result.policy = result.layers.chosen.empty()
                        ? with_ops(result.ops.chosen)
                        : with_layers(result.layers.chosen);
    result.with = try_policy(result.policy);
    return result;
  }

 private:
  static bool worth_more(SearchEnd end) {
    return end == SearchEnd::found || end == SearchEnd::none_helps;
  }

  RunError try_policy(const PrecisionPolicy& policy) {
    return error_of(
        run_(options_.device, options_.precision, policy.bind(module_)),
        reference_);
  }

  bool is_good(const PrecisionPolicy& policy) {
    const auto error = try_policy(policy);
    return error.finite && error.loss <= options_.bounds.loss &&
           error.values <= options_.bounds.values;
  }

  // Those that ran and are not in FP32 already, the last one first: what is in
  // FP32 stays so downstream, and the op nearest to the harm is the one to
  // name. Products, which save most in 16 bits, at the end: those are left out
  // first.
  std::vector<std::string> candidate_ops() const {
    const OpPolicy stock;
    std::vector<std::string> result;
    std::vector<std::string> products;
    for (auto each = ops_.rbegin(); each != ops_.rend(); ++each) {
      const std::string& op = *each;
      const auto rule = stock.rule(op, options_.device.type());
      if (rule == OpRule::lower_precision) {
        products.push_back(op);
      } else if (rule != OpRule::float32 && rule != OpRule::refuse) {
        result.push_back(op);
      }
    }
    result.insert(result.end(), products.begin(), products.end());
    return result;
  }

  const torch::nn::Module& module_;
  const PrecisionRun& run_;
  const BisectOptions& options_;
  RunOutcome reference_;
  std::vector<std::string> ops_;
};

// Puts random numbers and buffers back, also if the pass throws.
class RestoredModule {
 public:
  explicit RestoredModule(const torch::nn::Module& module)
      : buffers_(module.buffers()), random_(io::rng_state()) {
    for (const at::Tensor& buffer : buffers_) {
      values_.push_back(buffer.detach().clone());
    }
  }
  ~RestoredModule() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      buffers_[i].copy_(values_[i]);
    }
    io::set_rng_state(random_);
  }
  RestoredModule(const RestoredModule&) = delete;
  RestoredModule(RestoredModule&&) = delete;
  RestoredModule& operator=(const RestoredModule&) = delete;
  RestoredModule& operator=(RestoredModule&&) = delete;

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> values_;
  io::StateDict random_;
};

std::vector<at::Tensor> trained_parameters(const torch::nn::Module& module) {
  auto parameters = module.parameters();
  std::erase_if(parameters, [](const at::Tensor& parameter) {
    return !parameter.requires_grad();
  });
  return parameters;
}

void print_error(std::ostream& out, const RunError& error) {
  if (error.finite) {
    out << "loss off by " << 100 * error.loss << " %, values by "
        << 100 * error.values << " %";
  } else {
    out << "not finite";
  }
}

void print_set(
    std::ostream& out, const std::string& what, const MinimalSet& set) {
  out << what << " in FP32, " << set.runs << " runs: " << to_string(set.end)
      << '\n';
  for (const std::string& name : set.chosen) {
    out << "  " << name << '\n';
  }
}

} // namespace

Bisection bisect_precision(
    const torch::nn::Module& module,
    const PrecisionRun& run,
    const BisectOptions& options) {
  return Bisector(module, run, options).bisect();
}

PrecisionRun single_pass(
    torch::nn::Module& module,
    std::function<at::Tensor()> loss,
    double loss_scale) {
  return [&module, loss = std::move(loss), loss_scale](
             c10::Device device,
             const Precision& precision,
             const AutocastOptions& region) {
    const RestoredModule restored(module);
    const at::AutoGradMode grad_mode(true);
    at::Tensor value;
    {
      const Autocast autocast(device, precision, region);
      value = loss();
    }
    RunOutcome outcome{.losses = {value.item<double>()}};
    outcome.values = torch::autograd::grad(
        {value * loss_scale},
        trained_parameters(module),
        /*grad_outputs=*/{},
        /*retain_graph=*/std::nullopt,
        /*create_graph=*/false,
        /*allow_unused=*/true);
    const at::NoGradGuard no_grad;
    for (at::Tensor& gradient : outcome.values) {
      if (gradient.defined()) {
        gradient = gradient.to(at::kFloat) / loss_scale;
      }
    }
    return outcome;
  };
}

std::string to_string(const Bisection& bisection) {
  std::ostringstream out;
  out.precision(3);
  out << "as it is: ";
  print_error(out, bisection.without);
  out << '\n';
  print_set(out, "layers", bisection.layers);
  if (bisection.ops.runs > 0) {
    print_set(out, "or ops", bisection.ops);
  }
  if (!bisection.layers.chosen.empty() || !bisection.ops.chosen.empty()) {
    out << "with that policy: ";
    print_error(out, bisection.with);
    out << '\n';
  }
  return out.str();
}

} // namespace ampkit::diagnose
