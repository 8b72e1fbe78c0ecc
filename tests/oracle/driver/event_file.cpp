#include <ampkit/io/event_file.h>

#include <cmath>

#include <c10/util/Exception.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

// event_file DIRECTORY EVENTS.json: a file of the scalars and texts listed as
// {"purge_step": n or null, "scalars": [[tag, value, step], ...],
//  "texts": [[tag, text, step], ...]}; a value may be the text "nan" or "inf".
void write_event_file(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 2, "usage: event_file DIRECTORY EVENTS.json");
  const auto events = read_json(args[1]);
  io::EventFileOptions options;
  if (!events["purge_step"].is_null()) {
    options.purge_step = events["purge_step"].get<int64_t>();
  }
  io::EventFileWriter writer(args[0], options);
  for (const auto& item : events["scalars"]) {
    const double value = item[1].is_string()
                             ? std::stod(item[1].get<std::string>())
                             : item[1].get<double>();
    writer.add_scalar(
        item[0].get<std::string>(), value, item[2].get<int64_t>());
  }
  for (const auto& item : events["texts"]) {
    writer.add_text(
        item[0].get<std::string>(),
        item[1].get<std::string>(),
        item[2].get<int64_t>());
  }
}

const Command kEventFile{"event_file", write_event_file};

} // namespace
} // namespace ampkit::oracle
