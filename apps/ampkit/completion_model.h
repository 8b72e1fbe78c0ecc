#pragma once

#include <string>
#include <vector>

#include <CLI/App.hpp>

namespace ampkit::app {

/// What can stand for an argument.
struct CompletionValue {
  enum class Kind {
    nothing, // a flag takes none
    text, // anything
    words, // one of `words`
    file,
    toml_file,
    folder,
    config_key, // a configuration key, "=", a value
  };
  Kind kind = Kind::nothing;
  bool many = false; // more than one may follow
  std::vector<std::string> words = {}; // of `words`; else besides the files
};

struct CompletionOption {
  std::vector<std::string> names; // "--output", "-o"
  std::string description;
  CompletionValue value;
};

struct CompletionCommand {
  std::string name; // empty: the program itself
  std::string description;
  std::vector<CompletionOption> options;
  std::vector<CompletionValue> positionals;
};

/// A key of the configuration and its values where they are few.
struct CompletionKey {
  std::string name;
  std::vector<std::string> values;
};

/// Everything that a shell can complete.
struct CompletionModel {
  std::string program;
  std::vector<CompletionCommand> commands; // the program itself first
  std::vector<CompletionKey> keys;
};

/// Read from `app` itself, so that an option added there is completed too. What
/// an argument can be is seen from its type name, as --help prints it:
/// KEY=VALUE, a name with CONFIG or TOML, with DIR, with FILE; {a,b} and
/// IsMember() give words, alone or besides one of those.
CompletionModel completion_model(const CLI::App& app);

/// The script that completes `model` in bash, zsh or fish.
std::string bash_completion(const CompletionModel& model);
std::string zsh_completion(const CompletionModel& model);
std::string fish_completion(const CompletionModel& model);

} // namespace ampkit::app
