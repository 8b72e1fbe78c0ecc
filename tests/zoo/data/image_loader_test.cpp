#include <ampkit/zoo/data/image_loader.h>

#include <algorithm>
#include <numeric>
#include <random>

#include <malloc.h>

#include <gtest/gtest.h>

#include <ampkit/error.h>

#include "support/errors.h"
#include "zoo/data/numbered_images.h"
#include "zoo/data/sample_files.h"

namespace ampkit::zoo {
namespace {

const AugmentOptions kEverything{
    .crop_padding = 2, .horizontal_flip = true, .cutout = 3};

std::shared_ptr<NumberedImages> images(int64_t count) {
  return std::make_shared<NumberedImages>(count);
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> counting_to(int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(ImageLoaderTest, EpochHoldsEveryImageOnceWithItsLabel) {
  ImageLoader loader(images(50), kPlain, {.batch_size = 8});
  const auto batches = whole_epoch(loader, 0);
  ASSERT_EQ(batches.size(), 7);
  EXPECT_EQ(loader.batches_per_epoch(), 7);
  EXPECT_EQ(batches.front().input.sizes(), at::IntArrayRef({8, 2, 6, 5}));
  EXPECT_EQ(batches.front().input.scalar_type(), at::kFloat);
  EXPECT_EQ(batches.back().input.size(0), 2);
  EXPECT_EQ(sorted(labels(batches)), counting_to(50));
  for (const auto& batch : batches) {
    const auto first = batch.input.select(1, 0).select(1, 0).select(1, 0);
    EXPECT_TRUE((first * 255 - 1).round().to(at::kLong).equal(batch.target));
  }
}

TEST(ImageLoaderTest, DropLastLeavesOutTheBatchThatIsNotFull) {
  ImageLoader loader(images(50), kPlain, {.batch_size = 8, .drop_last = true});
  EXPECT_EQ(loader.batches_per_epoch(), 6);
  EXPECT_EQ(labels(whole_epoch(loader, 0)).size(), 48);
}

TEST(ImageLoaderTest, WithoutShuffleTheOrderIsThatOfTheData) {
  ImageLoader loader(images(50), kPlain, {.batch_size = 8, .shuffle = false});
  EXPECT_EQ(labels(whole_epoch(loader, 0)), counting_to(50));
  EXPECT_EQ(labels(whole_epoch(loader, 1)), counting_to(50));
}

TEST(ImageLoaderTest, EpochsAndSeedsGiveOtherOrders) {
  ImageLoader loader(images(50), kPlain, {.seed = 1});
  ImageLoader other(images(50), kPlain, {.seed = 2});
  const auto zero = labels(whole_epoch(loader, 0));
  const auto one = labels(whole_epoch(loader, 1));
  EXPECT_NE(zero, one);
  EXPECT_NE(zero, counting_to(50));
  EXPECT_NE(zero, labels(whole_epoch(other, 0)));
  EXPECT_EQ(zero, labels(whole_epoch(loader, 0)));
}

// All six orders of three images, equally often: 600 +- 5 standard deviations.
TEST(ImageLoaderTest, EveryOrderIsEquallyLikely) {
  ImageLoader loader(images(3), kPlain, {.batch_size = 3, .threads = 0});
  std::map<std::vector<int64_t>, int> counts;
  for (int64_t epoch = 0; epoch < 3600; ++epoch) {
    ++counts[labels(whole_epoch(loader, epoch))];
  }
  EXPECT_EQ(counts.size(), 6);
  for (const auto& [order, count] : counts) {
    EXPECT_NEAR(count, 600, 112) << ::testing::PrintToString(order);
  }
}

TEST(ImageLoaderTest, ThreadsDoNotChangeABit) {
  if (fashion_mnist().empty()) {
    GTEST_SKIP() << "Debian's dataset-fashion-mnist is not installed";
  }
  const auto data = first_images(open_idx(fashion_mnist(), Split::train), 1000);
  ImageLoader reference(data, kEverything, {.batch_size = 64, .threads = 0});
  for (const int threads : {1, 2, 5}) {
    for (const int ahead : {1, 3, 50}) {
      ImageLoader loader(
          data,
          kEverything,
          {.batch_size = 64, .threads = threads, .prefetch_batches = ahead});
      for (int64_t epoch = 0; epoch < 2; ++epoch) {
        EXPECT_TRUE(
            same(whole_epoch(loader, epoch), whole_epoch(reference, epoch)))
            << threads << " threads, " << ahead << " ahead, epoch " << epoch;
      }
    }
  }
}

TEST(ImageLoaderTest, StartInMidEpochGivesTheRestOfIt) {
  const LoaderOptions options{.batch_size = 7, .seed = 3};
  ImageLoader loader(images(50), kEverything, options);
  const auto whole = whole_epoch(loader, 4);
  for (size_t first = 0; first <= whole.size(); ++first) {
    loader.start_epoch(4, static_cast<int64_t>(first));
    EXPECT_TRUE(
        same(rest_of_epoch(loader), {whole.begin() + first, whole.end()}));
  }
}

TEST(ImageLoaderTest, StateGoesOnWithTheNextBatch) {
  const LoaderOptions options{.batch_size = 7, .seed = ~0ULL};
  ImageLoader loader(images(50), kEverything, options);
  ImageLoader resumed(images(50), kEverything, options);
  loader.start_epoch(2);
  loader.next();
  loader.next();
  resumed.load_state_dict(loader.state_dict());
  EXPECT_TRUE(same(rest_of_epoch(resumed), rest_of_epoch(loader)));
  // The end of an epoch, too, and no epoch at all.
  resumed.load_state_dict(loader.state_dict());
  EXPECT_FALSE(resumed.next());
  resumed.load_state_dict(ImageLoader(images(50), {}, options).state_dict());
  EXPECT_ERROR(resumed.next(), c10::Error, "call start_epoch first");
}

TEST(ImageLoaderTest, StateOfOtherBatchesIsRefusedByName) {
  const auto state =
      ImageLoader(images(50), kPlain, {.batch_size = 8}).state_dict();
  ImageLoader loader(images(50), kPlain, {.batch_size = 9});
  loader.start_epoch(0, 3);
  EXPECT_ERROR(
      loader.load_state_dict(state),
      CheckpointError,
      "images_per_step",
      "integer 8",
      "integer 9");
  EXPECT_ERROR(loader.load_state_dict({}), c10::Error, "images", "not saved");
  EXPECT_EQ(loader.state_dict().integer("batch"), 3);
  ImageLoader seeded(images(50), kPlain, {.batch_size = 8, .seed = 1});
  EXPECT_ERROR(seeded.load_state_dict(state), CheckpointError, "seed");
}

// Eight images of 24 a rank and step: the step is that of one process.
TEST(ImageLoaderTest, RanksTogetherSeeWhatOneProcessSees) {
  ImageLoader one(images(100), kEverything, {.batch_size = 24});
  const auto expected = whole_epoch(one, 5);
  std::vector<std::vector<Batch>> parts;
  for (int64_t rank = 0; rank < 3; ++rank) {
    ImageLoader loader(
        images(100),
        kEverything,
        {.batch_size = 8, .rank = rank, .world_size = 3});
    parts.push_back(whole_epoch(loader, 5));
    ASSERT_EQ(parts.back().size(), expected.size());
  }
  for (size_t step = 0; step < expected.size(); ++step) {
    std::vector<at::Tensor> inputs;
    for (const auto& part : parts) {
      inputs.push_back(part[step].input);
    }
    EXPECT_TRUE(at::cat(inputs).equal(expected[step].input)) << step;
  }
  EXPECT_EQ(parts[0].back().input.size(0), 1); // 100 = 4 * 24 + 4: 1, 1, 2
  EXPECT_EQ(parts[2].back().input.size(0), 2);
}

TEST(ImageLoaderTest, RankWithoutAnImageRepeatsOne) {
  std::vector<int64_t> seen;
  int64_t counted = 0;
  for (int64_t rank = 0; rank < 4; ++rank) {
    ImageLoader loader(
        images(10), kPlain, {.batch_size = 2, .rank = rank, .world_size = 4});
    const auto batches = whole_epoch(loader, 0);
    ASSERT_EQ(batches.size(), 2);
    EXPECT_EQ(batches.back().target.numel(), 1);
    counted += batches.front().counted_images();
    counted += batches.back().counted_images();
    EXPECT_EQ(batches.front().step_images, 8);
    EXPECT_EQ(batches.back().step_images, 2);
    const auto mine = labels(batches);
    seen.insert(seen.end(), mine.begin(), mine.end());
  }
  auto distinct = sorted(seen);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  EXPECT_EQ(distinct, counting_to(10));
  EXPECT_EQ(counted, 10); // none twice
}

// 7 images a step: 2, 2 and 3 on three ranks, 3 and 4 on two.
TEST(ImageLoaderTest, EpochGoesOnAtAnotherNumberOfRanks) {
  const auto epoch_on = [](int64_t ranks, int64_t begin, int64_t end) {
    std::vector<int64_t> seen;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      ImageLoader loader(
          images(40),
          kPlain,
          {.rank = rank, .world_size = ranks, .images_per_step = 7});
      loader.start_epoch(2, begin);
      for (int64_t i = begin; i < end; ++i) {
        const auto batch = loader.next();
        EXPECT_EQ(batch->counted_images(), batch->target.size(0));
        const auto mine = labels({*batch});
        seen.insert(seen.end(), mine.begin(), mine.end());
      }
    }
    return seen;
  };
  auto seen = epoch_on(3, 0, 2);
  const auto rest = epoch_on(2, 2, 6);
  seen.insert(seen.end(), rest.begin(), rest.end());
  EXPECT_EQ(sorted(seen), counting_to(40));

  ImageLoader three(
      images(40), kPlain, {.world_size = 3, .images_per_step = 7});
  three.start_epoch(2, 2);
  ImageLoader two(
      images(40), kPlain, {.rank = 1, .world_size = 2, .images_per_step = 7});
  two.load_state_dict(three.state_dict());
  EXPECT_EQ(rest_of_epoch(two).size(), 4);
}

TEST(ImageLoaderTest, DamagedImageComesOutOfNext) {
  for (const int threads : {0, 1, 3}) {
    const auto data = images(50);
    data->damaged = 21;
    ImageLoader loader(
        data, kPlain, {.batch_size = 8, .shuffle = false, .threads = threads});
    loader.start_epoch(0);
    EXPECT_TRUE(loader.next());
    EXPECT_TRUE(loader.next());
    for (int call = 0; call < 3; ++call) { // and does not go on as if nothing
      EXPECT_ERROR(loader.next(), DataError, "17.jpg is damaged");
    }
    loader.start_epoch(0, 3);
    EXPECT_EQ(rest_of_epoch(loader).size(), 4);
  }
}

TEST(ImageLoaderTest, MakesNoMoreThanItMayAhead) {
  const auto data = images(1000);
  ImageLoader loader(
      data, kPlain, {.batch_size = 10, .threads = 3, .prefetch_batches = 2});
  data->reads = 0;
  loader.start_epoch(0);
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (data->reads < 20 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(data->reads, 20);
}

// Reading waits here, as for a disk: that needs no idle core.
TEST(ImageLoaderTest, ThroughputRisesWithTheWorkers) {
  const auto data = images(64);
  data->delay = std::chrono::milliseconds(2);
  const auto seconds_with = [&](int threads) {
    ImageLoader loader(data, kPlain, {.batch_size = 4, .threads = threads});
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(whole_epoch(loader, 0).size(), 16U);
    return std::chrono::duration<double>(
               std::chrono::steady_clock::now() - begin)
        .count();
  };
  const double one = seconds_with(1);
  EXPECT_GE(one, 64 * 2e-3);
  EXPECT_LT(seconds_with(4), 0.5 * one);
}

TEST(ImageLoaderTest, CanBeDestroyedAtAnyMoment) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 200; ++trial) {
    const auto data = images(200);
    data->delay = std::chrono::microseconds(random() % 3 * 20);
    data->damaged = random() % 4 == 0 ? 5 : -1;
    ImageLoader loader(
        data,
        kPlain,
        {.batch_size = 5,
         .shuffle = false,
         .threads = static_cast<int>(1 + random() % 4),
         .prefetch_batches = static_cast<int>(1 + random() % 5)});
    for (size_t epoch = 0; epoch < random() % 4; ++epoch) {
      loader.start_epoch(0, 2);
      for (size_t i = 0; i < random() % 4; ++i) {
        EXPECT_TRUE(loader.next());
      }
    }
  }
}

TEST(ImageLoaderTest, MemoryDoesNotGrowWithTheEpochs) {
  ImageLoader loader(images(500), kEverything, {.batch_size = 50});
  const auto used_after = [&](int64_t epochs) {
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      whole_epoch(loader, epoch);
    }
    const auto info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  const double before = used_after(5);
  EXPECT_NEAR(used_after(50), before, 64 * 1024);
}

TEST(ImageLoaderTest, OptionsOutOfRangeAreNamed) {
  const auto expect = [](const AugmentOptions& augment,
                         const LoaderOptions& options,
                         const std::string& field) {
    EXPECT_ERROR(
        ImageLoader(images(10), augment, options), c10::ValueError, field);
  };
  expect({}, {.batch_size = 0}, "batch_size");
  expect({}, {.threads = -1}, "threads");
  expect({}, {.prefetch_batches = 0}, "prefetch_batches");
  expect({}, {.world_size = 0}, "world_size");
  expect(
      {}, {.rank = 2, .world_size = 2}, "rank must be in [0, world_size = 2)");
  expect({}, {.batch_size = 11, .drop_last = true}, "drop_last");
  expect(
      {},
      {.world_size = 3, .images_per_step = 2},
      "[world_size = 3, 2147483647");
  expect({.crop_padding = -1}, {}, "crop_padding");
  expect({.cutout = -1}, {}, "cutout");
  expect({.mean = {0.5}, .std = {1, 1}}, {}, "mean needs one value");
  expect({.mean = {0, 0}}, {}, "std needs one value for each of 2 channels");
  expect({.mean = {0, 0}, .std = {1, 0}}, {}, "std must be > 0");
  expect({.mean = {0, NAN}, .std = {1, 1}}, {}, "mean must be finite");
  EXPECT_ERROR(ImageLoader(nullptr), c10::ValueError, "dataset is null");
}

TEST(ImageLoaderTest, CallsOutOfOrderOrRangeChangeNothing) {
  ImageLoader loader(images(10), kPlain, {.batch_size = 5});
  EXPECT_ERROR(loader.next(), c10::Error, "call start_epoch first");
  loader.start_epoch(0, 1);
  EXPECT_ERROR(loader.start_epoch(-1), c10::ValueError, "epoch", "got -1");
  EXPECT_ERROR(
      loader.start_epoch(1, 3), c10::ValueError, "first_batch", "[0, 2]");
  EXPECT_EQ(rest_of_epoch(loader).size(), 1);
  EXPECT_FALSE(loader.next());
}

} // namespace
} // namespace ampkit::zoo
