// A Verilated device behind C functions, for `emulator/rtl/model.py`. The build defines DEVICE, the class that Verilator
// made, and `ports.inc`: IN(name) and OUT(name) for each data path, in the order of `emulator/rtl/ports.py`.
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include DEVICE_HEADER
#include "verilated.h"
#ifdef TRACE
#include <cerrno>
#include <unistd.h>

#include "verilated_vcd_c.h"
#endif

namespace {

struct Path {
    CData* valid;
    void* row;
    size_t bytes;
};

struct Event {
    int64_t cycle;
    int64_t engine;
};

#ifdef TRACE
// Waves go to a descriptor, which stays open. The first error is kept: Verilator's own would end the process.
struct Waves final : VerilatedVcdFile {
    int descriptor = -1, error = 0;

    bool open(const std::string&) override { return true; }
    void close() override {}
    ssize_t write(const char* bytes, ssize_t count) override {
        if (error != 0) return count;
        const ssize_t done = ::write(descriptor, bytes, count);
        if (done >= 0 || errno == EINTR || errno == EAGAIN) return done;
        error = errno;
        return count;
    }
};
#endif

struct Device {
    VerilatedContext context;
    DEVICE top{&context, "device"};
    std::vector<Path> in, out;
    std::vector<Event> events;
    int64_t cycle = -1;
    int64_t period_ps = 1;
    bool overrun = false;
#ifdef TRACE
    Waves waves;
    std::unique_ptr<VerilatedVcdC> trace;
#endif

    Device() {
#define IN(name, words) in.push_back({&top.name##_valid, &top.name##_row, 4 * (words)});
#define OUT(name, words) out.push_back({&top.name##_valid, &top.name##_row, 4 * (words)});
#include "ports.inc"
#undef IN
#undef OUT
    }

    void dump(int64_t half) {
#ifdef TRACE
        if (trace) trace->dump(static_cast<uint64_t>((cycle + 1) * period_ps + half * period_ps / 2));
#else
        (void)half;
#endif
    }

    void tick() {
        top.clk = 0;
        top.eval();
        dump(1);
        ++cycle;
        top.clk = 1;
        top.eval();
        dump(0);
    }
};

}  // namespace

extern "C" {

// The mini-batch's size, which counts in reset, and the numbers of the update.
void device_settle(Device* device, const uint32_t* numbers) {
    auto& top = device->top;
    top.batch = numbers[0];
    top.share = numbers[1];
    top.rate = numbers[2];
    top.momentum = numbers[3];
    top.decay = numbers[4];
}

// A device in reset.
Device* device_new(const uint32_t* numbers) {
    auto* device = new Device;
    auto& top = device->top;
    device_settle(device, numbers);
    top.reset = 1;
    return device;
}

// Ends the reset, after `cycles` more of it; cycle -1 is then the last before the first edge. Waves go to a descriptor, if
// that is not negative.
void device_start(Device* device, int64_t cycles, int waves, int64_t period_ps) {
    for (int64_t i = 0; i < cycles; ++i) device->tick();
    device->top.reset = 0;
    device->cycle = -1;
    device->period_ps = period_ps;
#ifdef TRACE
    if (waves >= 0) {
        device->context.traceEverOn(true);
        device->waves.descriptor = waves;
        device->trace = std::make_unique<VerilatedVcdC>(&device->waves);
        device->top.trace(device->trace.get(), 99);
        device->trace->set_time_unit("1ps");
        device->trace->set_time_resolution("1ps");
        device->trace->open("waves");
    }
#else
    (void)waves;
#endif
}

// Writes what is left of the waves; returns the error that kept some from being written, or 0.
int device_end_waves(Device* device) {
#ifdef TRACE
    device->trace.reset();
    return device->waves.error;
#else
    (void)device;
    return 0;
#endif
}

void device_free(Device* device) {
    device->top.final();
    delete device;
}

// During reset.
void device_write(Device* device, uint32_t unit, uint32_t address, uint32_t data) {
    auto& top = device->top;
    top.host_write = 1;
    top.host_unit = unit;
    top.host_address = address;
    top.host_data = data;
    device->tick();
    top.host_write = 0;
}

uint32_t device_read(Device* device, uint32_t unit, uint32_t address) {
    auto& top = device->top;
    top.host_unit = unit;
    top.host_address = address;
    top.eval();
    return top.host_read;
}

// Puts a row on a path for the next edge.
void device_put(Device* device, int64_t path, const uint32_t* row) {
    std::memcpy(device->in[path].row, row, device->in[path].bytes);
    *device->in[path].valid = 1;
}

// Runs up to `cycles` cycles, and no further than one in which a row leaves or the update is done.
int64_t device_run(Device* device, int64_t cycles) {
    auto& top = device->top;
    for (int64_t i = 1; i <= cycles; ++i) {
        device->tick();
        for (auto& path : device->in) *path.valid = 0;
        uint64_t done = top.rows_done;
        for (int64_t engine = 0; done != 0; ++engine, done >>= 1)
            if (done & 1) device->events.push_back({device->cycle, engine});
        device->overrun = device->overrun || top.overrun;
        bool stop = top.done || device->overrun;
        for (auto& path : device->out) stop = stop || *path.valid;
        if (stop) return i;
    }
    return cycles;
}

int64_t device_has(Device* device, int64_t path) { return *device->out[path].valid; }

void device_get(Device* device, int64_t path, uint32_t* row) {
    std::memcpy(row, device->out[path].row, device->out[path].bytes);
}

int64_t device_done(Device* device) { return device->top.done; }
int64_t device_overrun(Device* device) { return device->overrun; }
int64_t device_events(Device* device) { return static_cast<int64_t>(device->events.size()); }
void device_log(Device* device, int64_t* log) {
    std::memcpy(log, device->events.data(), device->events.size() * sizeof(Event));
}

}  // extern "C"
