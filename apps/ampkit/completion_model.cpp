#include "completion_model.h"

#include <sstream>
#include <string_view>

#include <ampkit/zoo/train/config.h>

namespace ampkit::app {
namespace {

using Kind = CompletionValue::Kind;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, separator);) {
    const auto first = word.find_first_not_of(' ');
    if (first != std::string::npos) {
      words.push_back(word.substr(first));
    }
  }
  return words;
}

CompletionValue value_of(const CLI::Option& option) {
  const auto count = option.get_items_expected_max();
  if (count == 0) {
    return {};
  }
  const auto type = option.get_type_name();
  const auto names = [&](std::string_view word) {
    return type.find(word) != std::string::npos;
  };
  CompletionValue value{.kind = Kind::text, .many = count > 1};
  const auto open = type.find('{');
  const auto close = type.find('}');
  if (open != std::string::npos && close != std::string::npos) {
    value.kind = Kind::words;
    value.words = split(type.substr(open + 1, close - open - 1), ',');
  }
  if (names("KEY=VALUE")) {
    value.kind = Kind::config_key;
  } else if (names("CONFIG") || names("TOML") || names(".toml")) {
    value.kind = Kind::toml_file;
  } else if (names("DIR")) {
    value.kind = Kind::folder;
  } else if (names("FILE")) {
    value.kind = Kind::file;
  }
  return value;
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const auto& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
  for (const auto& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  return names;
}

CompletionCommand command_of(const CLI::App& app, const std::string& name) {
  CompletionCommand command{.name = name, .description = app.get_description()};
  for (const auto* option : app.get_options()) {
    if (option->get_positional()) {
      command.positionals.push_back(value_of(*option));
    } else {
      command.options.push_back(
          {names_of(*option), option->get_description(), value_of(*option)});
    }
  }
  return command;
}

std::vector<CompletionKey> keys() {
  constexpr std::string_view kOneOf = "one of ";
  std::vector<CompletionKey> result;
  for (const auto& key : zoo::config_keys()) {
    CompletionKey entry{.name = key.name};
    if (key.expected.starts_with(kOneOf)) {
      // Behind a ";" stands what is no word.
      const auto words = key.expected.substr(kOneOf.size());
      entry.values = split(words.substr(0, words.find(';')), ',');
    } else if (key.expected == "true or false") {
      entry.values = {"true", "false"};
    }
    result.push_back(std::move(entry));
  }
  return result;
}

} // namespace

CompletionModel completion_model(const CLI::App& app) {
  CompletionModel model{.program = app.get_name(), .keys = keys()};
  model.commands.push_back(command_of(app, ""));
  for (const auto* command :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    model.commands.push_back(command_of(*command, command->get_name()));
  }
  return model;
}

} // namespace ampkit::app
