#include "io/torch_globals.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include "io/torch_dtypes.h"

namespace ampkit::io {
namespace {

constexpr const char* kOrderedDict = "collections.OrderedDict";
constexpr const char* kCounter = "collections.Counter";
constexpr const char* kSize = "torch.Size";
constexpr const char* kTensor = "torch._utils._rebuild_tensor_v2";
constexpr const char* kTensorWithDtype = "torch._utils._rebuild_tensor_v3";
constexpr const char* kParameter = "torch._utils._rebuild_parameter";
constexpr const char* kUntyped = "torch.storage.UntypedStorage";

constexpr const char* kFunctions[] = {
    kOrderedDict, kCounter, kSize, kTensor, kTensorWithDtype, kParameter};

constexpr size_t kMostDimensions = 64;
constexpr size_t kMostCounted = 1'000'000;

struct Advice {
  const char* start; // of the global's name
  const char* text;
};

// What people save most often and how to save it instead. First match.
constexpr Advice kAdvice[] = {
    {"torch._utils._rebuild_sparse_tensor",
     "a sparse tensor: save its to_dense()"},
    {"torch._utils._rebuild_qtensor",
     "a quantised tensor: save its dequantize()"},
    {"torch._utils._rebuild_meta_tensor_no_storage",
     "a tensor on the meta device, which has no values"},
    {"torch._utils._rebuild_nested_tensor",
     "a nested tensor: save what it was made of"},
    {"torch._utils._rebuild_parameter_with_state",
     "a parameter with attributes: save its detach()"},
    {"torch._tensor._rebuild_from_type_v2",
     "a tensor with attributes, or of a class of its own: save its detach()"},
    {"torch.distributed.", "a distributed tensor: save its full_tensor()"},
    {"numpy.", "a NumPy value: save float(value) or torch.from_numpy(array)"},
    {"torch.jit._pickle.",
     "a file of torch::pickle_save: read it with torch::pickle_load"},
    {"torch.nn.", "a whole module: save its state_dict()"},
    {"torch.optim.", "a whole optimizer: save its state_dict()"},
    {"__main__.", "an object of the script: save its state_dict()"},
};

template <class Value>
const Value& as(const PickleNode* node, const char* what) {
  const Value* value = std::get_if<Value>(&node->value);
  check_pickle(value != nullptr, what, " is ", kind_of(*node));
  return *value;
}

std::vector<int64_t> integers(const PickleNode* node, const char* what) {
  std::vector<int64_t> result;
  const auto& items = as<PickleSequence>(node, what).items;
  check_pickle(
      items.size() <= kMostDimensions, what, " has ", items.size(), " numbers");
  for (const PickleNode* item : items) {
    const int64_t value = as<int64_t>(item, what);
    check_pickle(value >= 0, what, " has the negative number ", value);
    result.push_back(value);
  }
  return result;
}

/// Where the values of a tensor are, in elements of its storage.
struct Extent {
  int64_t offset = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

/// What the tensor needs of its storage, in elements; throws if that, or the
/// number of its elements, has no place in 63 bits.
int64_t reach(const Extent& extent, int64_t element_size) {
  check_pickle(
      extent.sizes.size() == extent.strides.size(),
      "a tensor has ",
      extent.sizes.size(),
      " sizes and ",
      extent.strides.size(),
      " strides");
  int64_t last = extent.offset;
  int64_t count = element_size;
  bool overflow = false;
  for (size_t i = 0; i < extent.sizes.size(); ++i) {
    const int64_t size = extent.sizes[i];
    int64_t way = 0;
    overflow |= __builtin_mul_overflow(
        std::max<int64_t>(size - 1, 0), extent.strides[i], &way);
    overflow |= __builtin_add_overflow(last, way, &last);
    // 0 elements, but sizes whose product a kernel may compute.
    overflow |=
        __builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count);
  }
  overflow |= __builtin_add_overflow(last, 1, &last);
  check_pickle(
      !overflow,
      "a tensor of sizes ",
      c10::IntArrayRef(extent.sizes),
      " is too large");
  const bool is_empty =
      std::find(extent.sizes.begin(), extent.sizes.end(), 0) !=
      extent.sizes.end();
  return is_empty ? 0 : last;
}

at::Tensor tensor_over(
    const c10::Storage& storage, c10::ScalarType dtype, const Extent& extent) {
  const auto element_size = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t needed = reach(extent, element_size);
  const int64_t held = static_cast<int64_t>(storage.nbytes()) / element_size;
  check_pickle(
      needed <= held,
      "a tensor needs ",
      needed,
      " values, its storage has ",
      held);
  return at::empty({0}, at::TensorOptions().dtype(dtype))
      .set_(storage, extent.offset, extent.sizes, extent.strides);
}

/// The bits by which a tensor differs from its storage: conj, neg.
at::Tensor with_metadata(at::Tensor tensor, const PickleDict& metadata) {
  check_pickle(metadata.items.size() <= 2, "a tensor has unknown properties");
  for (const auto& [key, value] : metadata.items) {
    const auto& name = as<std::string>(key, "the name of a tensor's property");
    check_pickle(
        name == "conj" || name == "neg",
        "a tensor has the property '",
        name,
        "', which is unknown here");
    if (as<bool>(value, "a tensor's property")) {
      check_pickle(
          name == "neg" || tensor.is_complex(),
          "a tensor that is not complex is marked as conjugate");
      tensor = name == "conj" ? tensor._conj() : tensor._neg_view();
    }
  }
  return tensor;
}

at::Tensor with_gradient(const at::Tensor& tensor, const PickleNode* flag) {
  const bool wanted = as<bool>(flag, "requires_grad");
  check_pickle(
      !wanted || tensor.is_floating_point() || tensor.is_complex(),
      "a tensor of integers requires a gradient");
  return wanted ? tensor.detach().requires_grad_(true) : tensor;
}

} // namespace

PickleNode* TorchGlobals::find(const std::string& name) {
  const bool is_function =
      std::find(std::begin(kFunctions), std::end(kFunctions), name) !=
      std::end(kFunctions);
  if (is_function || name == kUntyped) {
    return nodes_.add(PickleGlobal{name});
  }
  constexpr std::string_view kTorch = "torch.";
  if (name.starts_with(kTorch)) {
    const std::string rest = name.substr(kTorch.size());
    if (const TorchDtype* dtype = find_torch_dtype(std::string_view(rest))) {
      return nodes_.add(dtype->type);
    }
    if (find_torch_storage(rest) != nullptr) {
      return nodes_.add(PickleGlobal{name});
    }
  }
  const auto* advice = std::find_if(
      std::begin(kAdvice), std::end(kAdvice), [&](const Advice& item) {
        return name.starts_with(item.start);
      });
  check_pickle(
      false,
      name,
      " is not what a state dict is made of",
      advice != std::end(kAdvice) ? c10::str("; this is ", advice->text)
                                  : "; nothing was run");
  return nullptr;
}

PickleNode* TorchGlobals::call(
    const PickleGlobal& function, const PickleSequence& arguments) {
  if (function.name == kTensor || function.name == kTensorWithDtype) {
    return rebuild_tensor(arguments, function.name == kTensorWithDtype);
  }
  if (function.name == kParameter) {
    return rebuild_parameter(arguments);
  }
  const auto& items = arguments.items;
  if (function.name == kOrderedDict) {
    check_pickle(items.empty(), "an OrderedDict takes no arguments here");
    return nodes_.add(PickleDict{.items = {}, .kind = TorchDictKind::ordered});
  }
  check_pickle(items.size() == 1, function.name, " takes one argument");
  if (function.name == kCounter) {
    return make_counter(as<PickleDict>(items[0], "the argument of a Counter"));
  }
  check_pickle(function.name == kSize, function.name, " cannot be called");
  check_pickle(
      as<PickleSequence>(items[0], "the argument of torch.Size").is_tuple,
      "torch.Size takes a tuple, got a list");
  return items[0];
}

PickleNode* TorchGlobals::make_counter(const PickleDict& counts) {
  // Copies of one large dict are not bounded by the size of the pickle.
  counted_ += counts.items.size();
  check_pickle(
      counted_ <= kMostCounted, "Counters of more than a million entries");
  return nodes_.add(
      PickleDict{.items = counts.items, .kind = TorchDictKind::counter});
}

PickleNode* TorchGlobals::rebuild_tensor(
    const PickleSequence& arguments, bool has_dtype) {
  const auto& items = arguments.items;
  const size_t least = has_dtype ? 7 : 6;
  check_pickle(
      items.size() == least || items.size() == least + 1,
      "a tensor takes ",
      least,
      " arguments, got ",
      items.size());
  const auto& stored = as<PickleStorage>(items[0], "a tensor's storage");
  const auto dtype = has_dtype
                         ? as<c10::ScalarType>(items[6], "a tensor's dtype")
                         : stored.dtype;
  check_pickle(
      dtype != c10::ScalarType::Undefined, "a tensor's storage has no dtype");
  const Extent extent{
      as<int64_t>(items[1], "a tensor's offset"),
      integers(items[2], "a tensor's size"),
      integers(items[3], "a tensor's stride")};
  check_pickle(extent.offset >= 0, "a tensor's offset is ", extent.offset);
  check_pickle(
      as<PickleDict>(items[5], "a tensor's hooks").items.empty(),
      "a tensor has hooks");
  if (dtype == c10::ScalarType::Bool) {
    check_booleans(stored.storage);
  }
  at::Tensor tensor = tensor_over(stored.storage, dtype, extent);
  if (items.size() > least) {
    tensor = with_metadata(
        tensor, as<PickleDict>(items[least], "a tensor's properties"));
  }
  return nodes_.add(with_gradient(tensor, items[4]));
}

PickleNode* TorchGlobals::rebuild_parameter(const PickleSequence& arguments) {
  const auto& items = arguments.items;
  check_pickle(items.size() == 3, "a parameter takes 3 arguments");
  const auto& data = as<at::Tensor>(items[0], "a parameter's data");
  return nodes_.add(with_gradient(data.detach(), items[1]));
}

PickleNode* TorchGlobals::load(const PickleSequence& id) {
  const auto& items = id.items;
  check_pickle(
      items.size() == 5 &&
          as<std::string>(items[0], "the kind of an outside value") ==
              "storage",
      "what lies outside of the pickle should be a storage");
  const auto& type = as<PickleGlobal>(items[1], "a storage's type").name;
  const TorchDtype* dtype =
      type == kUntyped
          ? nullptr
          : find_torch_storage(type.substr(std::string("torch.").size()));
  check_pickle(
      type == kUntyped || dtype != nullptr, type, " is not a type of storage");
  const auto& key = as<std::string>(items[2], "the key of a storage");
  const int64_t count = as<int64_t>(items[4], "the size of a storage");
  const auto width = static_cast<int64_t>(
      dtype == nullptr ? 1 : c10::elementSize(dtype->type));
  c10::Storage storage = read(key);
  const auto held = static_cast<int64_t>(storage.nbytes());
  check_pickle(
      held % width == 0 && held / width == count,
      "storage '",
      key,
      "' should have ",
      count,
      " elements of ",
      width,
      " bytes, its record has ",
      held,
      " bytes");
  return nodes_.add(PickleStorage{
      std::move(storage),
      dtype == nullptr ? c10::ScalarType::Undefined : dtype->type});
}

c10::Storage TorchGlobals::read(const std::string& key) {
  const auto place = storages_.find(key);
  if (place != storages_.end()) {
    return place->second;
  }
  const auto bytes = archive_.record("data/" + key, verify_);
  const at::Tensor values =
      at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) {
    std::memcpy(values.mutable_data_ptr(), bytes.data(), bytes.size());
  }
  return storages_.emplace(key, values.storage()).first->second;
}

// A bool that is neither 0 nor 1 is undefined behaviour in every kernel.
void TorchGlobals::check_booleans(const c10::Storage& storage) {
  if (valid_booleans_.insert(storage.unsafeGetStorageImpl()).second) {
    const auto* first = static_cast<const uint8_t*>(storage.data());
    const auto* last = first + storage.nbytes();
    const auto* wrong =
        std::find_if(first, last, [](uint8_t value) { return value > 1; });
    check_pickle(
        wrong == last,
        "a tensor of booleans has another byte than 0 and 1 at ",
        wrong - first);
  }
}

} // namespace ampkit::io
