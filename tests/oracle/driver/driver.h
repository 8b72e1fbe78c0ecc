#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

namespace ampkit::oracle {

/// One command of the oracle driver, the C++ half of the tests in
/// tests/oracle/: Python computes what PyTorch does and asks the driver, by
/// `oracle_driver COMMAND ARGUMENTS...`, what ampkit does on the same input.
/// Files carry the tensors (safetensors) and the settings (JSON).
struct Command {
  Command(const char* name, void (*run)(std::span<const std::string> args));
};

nlohmann::json read_json(const std::string& path);
void write_json(const std::string& path, const nlohmann::json& value);

} // namespace ampkit::oracle
