#include "io/safetensors_json.h"

#include <set>

#include <nlohmann/json.hpp>

#include <c10/util/Exception.h>

#include <ampkit/error.h>

namespace ampkit::io {
namespace {

// Far more than any tensor has, and few enough for every LibTorch op.
constexpr size_t kMaxDimensions = 64;

// Takes the header apart while it is parsed: the order is kept, a name given
// twice is seen, and nesting or junk costs no memory. A value of the wrong
// kind throws at once.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(
      const std::string& path, uint64_t text_offset, RawHeader& header)
      : path_(path), text_offset_(text_offset), header_(header) {}

  bool start_object(size_t /*size*/) override {
    if (depth_ > 1 || (depth_ == 1 && in_array_)) {
      fail("an object");
    }
    ++depth_;
    return true;
  }

  bool end_object() override {
    --depth_;
    if (depth_ == 1 && !in_metadata_) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        AMPKIT_CHECK_CHECKPOINT(
            fields_.contains(field), where(), " has no '", field, "'");
      }
    }
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == 1) {
      begin_entry(text);
    } else {
      begin_field(text);
    }
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      header_.metadata.emplace(field_, text);
    } else if (depth_ == 2 && !in_array_ && field_ == "dtype") {
      header_.tensors.back().dtype = text;
    } else {
      fail("a text");
    }
    return true;
  }

  bool start_array(size_t /*size*/) override {
    if (depth_ != 2 || in_array_ || in_metadata_ || field_ == "dtype") {
      fail("an array");
    }
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (!in_array_) {
      fail("a number");
    }
    auto& tensor = header_.tensors.back();
    auto& numbers = field_ == "shape" ? tensor.shape : tensor.offsets;
    const size_t most = field_ == "shape" ? kMaxDimensions : 2;
    AMPKIT_CHECK_CHECKPOINT(
        numbers.size() < most,
        where(),
        " has more than ",
        most,
        " numbers in '",
        field_,
        "'");
    numbers.push_back(value);
    return true;
  }

  bool number_integer(int64_t /*value*/) override { fail("a negative number"); }
  bool number_float(double /*value*/, const std::string& text) override {
    fail(text.c_str());
  }
  bool null() override { fail("null"); }
  bool boolean(bool /*value*/) override { fail("a boolean"); }
  bool binary(nlohmann::json::binary_t& /*value*/) override {
    fail("binary data");
  }

  bool parse_error(
      size_t position,
      const std::string& /*token*/,
      const nlohmann::json::exception& error) override {
    // `position` counts characters from 1.
    AMPKIT_CHECK_CHECKPOINT(
        false,
        "SafetensorsReader: the header of ",
        path_,
        " is not JSON at byte ",
        text_offset_ + (position == 0 ? 0 : position - 1),
        " of the file: ",
        error.what());
    return false;
  }

 private:
  void begin_entry(const std::string& name) {
    AMPKIT_CHECK_CHECKPOINT(
        names_.insert(name).second,
        "SafetensorsReader: the header of ",
        path_,
        " gives the name '",
        name,
        "' twice");
    in_metadata_ = name == "__metadata__";
    name_ = name;
    field_.clear();
    fields_.clear();
    if (!in_metadata_) {
      header_.tensors.push_back({.name = name});
    }
  }

  void begin_field(const std::string& field) {
    AMPKIT_CHECK_CHECKPOINT(
        in_metadata_ || field == "dtype" || field == "shape" ||
            field == "data_offsets",
        where(),
        " has an unknown field '",
        field,
        "'");
    AMPKIT_CHECK_CHECKPOINT(
        fields_.insert(field).second, where(), " has '", field, "' twice");
    field_ = field;
  }

  std::string where() const {
    return c10::str(
        "SafetensorsReader: ",
        path_,
        in_metadata_ ? ": the header's '" : ": tensor '",
        name_,
        "'");
  }

  [[noreturn]] void fail(const char* found) const {
    AMPKIT_CHECK_CHECKPOINT(
        !name_.empty(),
        "SafetensorsReader: the header of ",
        path_,
        " should be an object of objects, got ",
        found);
    AMPKIT_CHECK_CHECKPOINT(
        false, where(), " has ", found, " at '", field_, "'");
    __builtin_unreachable();
  }

  const std::string& path_;
  uint64_t text_offset_;
  RawHeader& header_;
  std::set<std::string> names_; // of the whole header
  std::set<std::string> fields_; // of the entry being read
  std::string name_;
  std::string field_;
  int depth_ = 0;
  bool in_metadata_ = false;
  bool in_array_ = false;
};

} // namespace

RawHeader parse_header_json(
    const std::string& path, std::string_view text, uint64_t text_offset) {
  RawHeader header;
  HeaderHandler handler(path, text_offset, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  return header;
}

} // namespace ampkit::io
