#include "io/torch_archive.h"

#include <exception>

#include <ATen/Functions.h>
#include <caffe2/serialize/inline_container.h>

#include "io/atomic_file.h"

namespace ampkit::io {
namespace {

// The destructor of PyTorchStreamWriter writes, and ends the process if that
// fails. So nothing fails for it: the first error is kept for the end.
class Sink {
 public:
  explicit Sink(const std::string& path) : file_(path) {}

  size_t write(const void* data, size_t size) {
    try {
      if (!error_) {
        file_.write_at(
            offset_, std::span(static_cast<const std::byte*>(data), size));
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    offset_ += size;
    return size;
  }

  void check() const {
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

  void commit() {
    check();
    file_.commit();
  }

 private:
  AtomicFile file_;
  uint64_t offset_ = 0;
  std::exception_ptr error_;
};

at::Tensor on_cpu(const c10::Storage& storage) {
  const auto options =
      at::TensorOptions().dtype(at::kByte).device(storage.device());
  return at::empty({0}, options)
      .set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1})
      .cpu();
}

} // namespace

void write_torch_archive(
    const std::string& path,
    const std::string& pickle,
    std::span<const c10::Storage> storages) {
  Sink sink(path);
  {
    caffe2::serialize::PyTorchStreamWriter writer(
        [&sink](const void* data, size_t size) {
          return sink.write(data, size);
        });
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    constexpr std::string_view kOrder = "little";
    writer.writeRecord("byteorder", kOrder.data(), kOrder.size());
    for (size_t i = 0; i < storages.size(); ++i) {
      const at::Tensor values = on_cpu(storages[i]);
      writer.writeRecord(
          "data/" + std::to_string(i),
          values.const_data_ptr(),
          storages[i].nbytes());
      sink.check();
    }
    writer.writeEndOfFile();
  }
  sink.commit();
}

} // namespace ampkit::io
