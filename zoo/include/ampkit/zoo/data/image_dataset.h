#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <c10/util/Exception.h>

#include <ampkit/export.h>

namespace ampkit::zoo {

/// A data file that is missing, damaged or of another format than asked for.
/// The message names the file, the byte or record, what was expected, what was
/// found and what to do.
class AMPKIT_API DataError : public c10::Error {
  using Error::Error;
};

/// Which part of a data set that comes in two.
enum class Split { train, test };

/// Size of every image of a data set, in pixels.
struct ImageShape {
  int64_t channels = 0; ///< 1: grey, 3: red, green, blue
  int64_t height = 0;
  int64_t width = 0;

  /// Bytes of one image.
  int64_t numel() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// Mean and standard deviation of each channel, of pixels scaled to [0, 1].
struct Normalization {
  std::vector<double> mean;
  std::vector<double> std;
};

/// Images of one size with a class label each. Immutable: every function may be
/// called by several threads at once.
class AMPKIT_API ImageDataset {
 public:
  virtual ~ImageDataset() = default;

  /// Number of images.
  virtual int64_t size() const = 0;
  virtual ImageShape shape() const = 0;
  virtual int64_t num_classes() const = 0;
  /// One name a class, in the order of the labels.
  virtual std::vector<std::string> class_names() const = 0;

  /// Writes the pixels of image `index`, in [0, size()), to `chw`: one plane a
  /// channel, rows from the top, shape().numel() bytes. Throws c10::ValueError
  /// if either does not fit, DataError if the image's file is damaged.
  virtual void read(int64_t index, std::span<uint8_t> chw) const = 0;

  /// In [0, num_classes()). Throws c10::ValueError if `index` is out of range.
  virtual int64_t label(int64_t index) const = 0;

  /// What batches of this data are normalised with unless told otherwise. Here:
  /// computed from all images, by reading them; a constant channel gets 1 as
  /// its standard deviation.
  virtual Normalization normalization() const;
};

/// Opens IDX files, the format of MNIST: <dir>/train-images-idx3-ubyte and
/// train-labels-idx1-ubyte, or t10k-..., each plain or with ".gz" (the plain
/// one is taken if both are there). Debian's package dataset-fashion-mnist puts
/// such files into /usr/share/datasets/fashion-mnist. Grey images, all read
/// into memory. Class names are "0", "1", ...
///
/// Throws DataError if a file is missing or damaged, if the two files differ in
/// their count, or at a label >= `num_classes`.
///
/// Source: https://github.com/zalandoresearch/fashion-mnist
AMPKIT_API std::shared_ptr<const ImageDataset> open_idx(
    const std::string& dir, Split split, int64_t num_classes = 10);

/// Opens the binary version of CIFAR-10: <dir>/data_batch_1.bin to
/// data_batch_5.bin, or test_batch.bin, 10,000 images [3, 32, 32] in each file,
/// all read into memory.
///
/// Throws DataError if a file is missing or not exactly of that size, or at a
/// label > 9.
///
/// Source: https://www.cs.toronto.edu/~kriz/cifar.html
AMPKIT_API std::shared_ptr<const ImageDataset> open_cifar10(
    const std::string& dir, Split split);

/// Size that the images of a folder get, in pixels; each >= 1.
struct ImageFolderOptions {
  int64_t height = 224;
  int64_t width = 224;
};

/// Opens a folder with one folder a class, which holds JPEG and PNG files, also
/// in folders below it. Classes are numbered in the order of their names.
/// Hidden files and folders are passed over. Only names are read here: an image
/// is decoded each time it is asked for.
///
/// Every image becomes [3, height, width]. It is scaled so that it just covers
/// that size, with an antialiased bilinear filter, and the middle is kept: the
/// bytes are those of Pillow's ImageOps.fit(image, size, BILINEAR). Grey
/// becomes red = green = blue; palettes are looked up; of 16 bits the upper 8
/// are kept; alpha and colour profiles are ignored; CMYK is converted as Pillow
/// does; EXIF orientation is not applied. normalization() is ImageNet's.
///
/// Throws DataError if there is no class folder, if one is empty, or at a file
/// that is named neither .jpg, .jpeg nor .png; read() throws it at a damaged
/// image, also where a viewer would show the undamaged part.
AMPKIT_API std::shared_ptr<const ImageDataset> open_image_folder(
    const std::string& dir, const ImageFolderOptions& options = {});

/// The first `count` images of `dataset`; `count` in [1, dataset->size()], else
/// c10::ValueError. normalization() is that of these images.
AMPKIT_API std::shared_ptr<const ImageDataset> first_images(
    std::shared_ptr<const ImageDataset> dataset, int64_t count);

} // namespace ampkit::zoo
