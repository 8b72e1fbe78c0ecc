#include <iostream>
#include <memory>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "command.h"
#include "completion_model.h"

namespace ampkit::app {

void add_completion_command(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  auto* command =
      app.add_subcommand("completion", "Print a script that completes ampkit");
  command->footer(R"(For this shell, or every new one from its start file:
  source <(ampkit completion bash)        ~/.bashrc
  source <(ampkit completion zsh)         ~/.zshrc, after compinit
  ampkit completion fish | source         ~/.config/fish/config.fish)");
  command->add_option("shell", *shell, "Which shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("SHELL");
  command->callback([&app, shell] {
    const auto model = completion_model(app);
    std::cout
        << (*shell == "bash"  ? bash_completion(model)
            : *shell == "zsh" ? zsh_completion(model)
                              : fish_completion(model));
  });
}

} // namespace ampkit::app
