// A rank for tests of `ampkit run`: keeps a flight recorder, and dies.
//
//   flight_probe FOLDER RANK    that rank is killed in the backward pass of its
//                               step 41; the others wait

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include <ampkit/diagnose/flight_recorder.h>

int main(int argc, char** argv) {
  const std::string rank = std::getenv("RANK");
  ampkit::diagnose::FlightRecorder flight(
      std::string(argv[1]) + "/flight-" + rank + ".bin");
  for (int64_t step = 1; step <= 40; ++step) {
    flight.begin(step, "forward");
    flight.record({.step = step, .loss = 1.0 / static_cast<double>(step)});
  }
  flight.begin(41, "backward");
  if (argc > 2 && rank == argv[2]) {
    std::raise(SIGKILL);
  }
  std::this_thread::sleep_for(std::chrono::seconds(60));
  return 0;
}
