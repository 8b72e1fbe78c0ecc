#pragma once

#include <map>
#include <set>
#include <string>

#include "io/pickle_machine.h"
#include "io/zip_archive.h"

namespace ampkit::io {

/// The classes and functions of a state dict: OrderedDict, torch.Size, dtypes,
/// storages and what rebuilds plain tensors. All others are refused by name.
class TorchGlobals : public PickleGlobals {
 public:
  /// Storages are read from `archive` when they are first mentioned.
  TorchGlobals(
      const ZipArchive& archive, PickleNodes& nodes, bool verify_checksums)
      : archive_(archive), nodes_(nodes), verify_(verify_checksums) {}

  PickleNode* find(const std::string& name) override;
  PickleNode* call(
      const PickleGlobal& function, const PickleSequence& arguments) override;
  PickleNode* load(const PickleSequence& id) override;

 private:
  c10::Storage read(const std::string& key);
  void check_booleans(const c10::Storage& storage);
  PickleNode* make_counter(const PickleDict& counts);
  PickleNode* rebuild_tensor(const PickleSequence& arguments, bool has_dtype);
  PickleNode* rebuild_parameter(const PickleSequence& arguments);

  const ZipArchive& archive_;
  PickleNodes& nodes_;
  bool verify_;
  std::map<std::string, c10::Storage> storages_;
  std::set<const void*> valid_booleans_;
  size_t counted_ = 0;
};

} // namespace ampkit::io
