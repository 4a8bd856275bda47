// 2/pi times 2^(e - 150) for the biased exponents e = 115 ... 254 of floats, less the nearest multiple of 4, in two
// parts: `high` has 29 bits, so that its product with a 24-bit integer is exact in double, and `low` the next 53.
#pragma once

namespace st {
namespace detail {

constexpr int two_over_pi_first = 115, two_over_pi_rows = 140;

static constexpr double two_over_pi_high[two_over_pi_rows] = {
    0x1.45f306ep-36, 0x1.45f306ep-35, 0x1.45f306ep-34, 0x1.45f306ep-33, 0x1.45f306ep-32, 0x1.45f306ep-31,
    0x1.45f306ep-30, 0x1.45f306ep-29, 0x1.45f306ep-28, 0x1.45f306ep-27, 0x1.45f306ep-26, 0x1.45f306ep-25,
    0x1.45f306ep-24, 0x1.45f306ep-23, 0x1.45f306ep-22, 0x1.45f306ep-21, 0x1.45f306ep-20, 0x1.45f306ep-19,
    0x1.45f306ep-18, 0x1.45f306ep-17, 0x1.45f306ep-16, 0x1.45f306ep-15, 0x1.45f306ep-14, 0x1.45f306ep-13,
    0x1.45f306ep-12, 0x1.45f306ep-11, 0x1.45f306ep-10, 0x1.45f306ep-9, 0x1.45f306ep-8, 0x1.45f306ep-7, 0x1.45f306ep-6,
    0x1.45f306ep-5, 0x1.45f306ep-4, 0x1.45f306ep-3, 0x1.45f306ep-2, 0x1.45f306ep-1, 0x1.45f306ep+0, -0x1.7419f24p+0,
    0x1.17cc1b7p+0, -0x1.d067c92p+0, 0x1.7cc1b72p-2, 0x1.7cc1b72p-1, 0x1.7cc1b72p+0, -0x1.067c91bp+0, 0x1.f306dcap+0,
    -0x1.9f246c7p-4, -0x1.9f246c7p-3, -0x1.9f246c7p-2, -0x1.9f246c7p-1, -0x1.9f246c7p+0, 0x1.836e4e4p-1,
    0x1.836e4e4p+0, -0x1.f246c6fp-1, -0x1.f246c6fp+0, 0x1.b727221p-4, 0x1.b727221p-3, 0x1.b727221p-2, 0x1.b727221p-1,
    0x1.b727221p+0, -0x1.236377dp-1, -0x1.236377dp+0, 0x1.b939105p+0, -0x1.1b1bbebp-1, -0x1.1b1bbebp+0,
    0x1.c9c882ap+0, -0x1.b1bbeadp-2, -0x1.b1bbeadp-1, -0x1.b1bbeadp+0, 0x1.391054ap-1, 0x1.391054ap+0,
    -0x1.8ddf56bp+0, 0x1.c882a54p-1, 0x1.c882a54p+0, -0x1.bbead6p-2, -0x1.bbead6p-1, -0x1.bbead6p+0, 0x1.1054a7fp-1,
    0x1.1054a7fp+0, -0x1.df56b02p+0, 0x1.054a7f1p-2, 0x1.054a7f1p-1, 0x1.054a7f1p+0, -0x1.f56b01fp+0, 0x1.529fc27p-4,
    0x1.529fc27p-3, 0x1.529fc27p-2, 0x1.529fc27p-1, 0x1.529fc27p+0, -0x1.5ac07b1p+0, 0x1.4a7f09dp+0, -0x1.6b01ec5p+0,
    0x1.29fc275p+0, -0x1.ac07b15p+0, 0x1.4fe13acp-1, 0x1.4fe13acp+0, -0x1.603d8a8p+0, 0x1.3f84ebp+0, -0x1.80f62a1p+0,
    0x1.fc2757dp-1, 0x1.fc2757dp+0, -0x1.ec5417p-6, -0x1.ec5417p-5, -0x1.ec5417p-4, -0x1.ec5417p-3, -0x1.ec5417p-2,
    -0x1.ec5417p-1, -0x1.ec5417p+0, 0x1.3abe8fbp-3, 0x1.3abe8fbp-2, 0x1.3abe8fbp-1, 0x1.3abe8fbp+0, -0x1.8a82e0bp+0,
    0x1.d5f47d5p-1, 0x1.d5f47d5p+0, -0x1.505c159p-2, -0x1.505c159p-1, -0x1.505c159p+0, 0x1.5f47d4dp+0,
    -0x1.4170566p+0, 0x1.7d1f535p+0, -0x1.05c1596p+0, 0x1.f47d4d3p+0, -0x1.7056591p-4, -0x1.7056591p-3,
    -0x1.7056591p-2, -0x1.7056591p-1, -0x1.7056591p+0, 0x1.1f534dep+0, -0x1.c159644p+0, 0x1.f534ddcp-2,
    0x1.f534ddcp-1, 0x1.f534ddcp+0, -0x1.596447ep-4, -0x1.596447ep-3, -0x1.596447ep-2, -0x1.596447ep-1,
    -0x1.596447ep+0, 0x1.4d37703p+0, -0x1.65911f9p+0, 0x1.34ddc0ep+0,
};
static constexpr double two_over_pi_low[two_over_pi_rows] = {
    -0x1.b1bbead603d8bp-67, -0x1.b1bbead603d8bp-66, -0x1.b1bbead603d8bp-65, -0x1.b1bbead603d8bp-64,
    -0x1.b1bbead603d8bp-63, -0x1.b1bbead603d8bp-62, -0x1.b1bbead603d8bp-61, -0x1.b1bbead603d8bp-60,
    -0x1.b1bbead603d8bp-59, -0x1.b1bbead603d8bp-58, -0x1.b1bbead603d8bp-57, -0x1.b1bbead603d8bp-56,
    -0x1.b1bbead603d8bp-55, -0x1.b1bbead603d8bp-54, -0x1.b1bbead603d8bp-53, -0x1.b1bbead603d8bp-52,
    -0x1.b1bbead603d8bp-51, -0x1.b1bbead603d8bp-50, -0x1.b1bbead603d8bp-49, -0x1.b1bbead603d8bp-48,
    -0x1.b1bbead603d8bp-47, -0x1.b1bbead603d8bp-46, -0x1.b1bbead603d8bp-45, -0x1.b1bbead603d8bp-44,
    -0x1.b1bbead603d8bp-43, -0x1.b1bbead603d8bp-42, -0x1.b1bbead603d8bp-41, -0x1.b1bbead603d8bp-40,
    -0x1.b1bbead603d8bp-39, -0x1.b1bbead603d8bp-38, -0x1.b1bbead603d8bp-37, -0x1.b1bbead603d8bp-36,
    -0x1.b1bbead603d8bp-35, -0x1.b1bbead603d8bp-34, -0x1.b1bbead603d8bp-33, -0x1.b1bbead603d8bp-32,
    -0x1.b1bbead603d8bp-31, -0x1.b1bbead603d8bp-30, 0x1.391054a7f09d6p-31, 0x1.391054a7f09d6p-30,
    0x1.c882a53f84ebp-32, 0x1.c882a53f84ebp-31, 0x1.c882a53f84ebp-30, -0x1.bbead603d8a83p-32, -0x1.bbead603d8a83p-31,
    0x1.054a7f09d5f48p-36, 0x1.054a7f09d5f48p-35, 0x1.054a7f09d5f48p-34, 0x1.054a7f09d5f48p-33, 0x1.054a7f09d5f48p-32,
    0x1.054a7f09d5f48p-31, 0x1.054a7f09d5f48p-30, 0x1.529fc2757d1f5p-35, 0x1.529fc2757d1f5p-34,
    -0x1.5ac07b1505c16p-34, -0x1.5ac07b1505c16p-33, -0x1.5ac07b1505c16p-32, -0x1.5ac07b1505c16p-31,
    -0x1.5ac07b1505c16p-30, -0x1.6b01ec5417056p-31, -0x1.6b01ec5417056p-30, 0x1.29fc2757d1f53p-30,
    0x1.4fe13abe8fa9ap-32, 0x1.4fe13abe8fa9ap-31, 0x1.4fe13abe8fa9ap-30, -0x1.80f62a0b82b2dp-32,
    -0x1.80f62a0b82b2dp-31, -0x1.80f62a0b82b2dp-30, 0x1.fc2757d1f534ep-31, 0x1.fc2757d1f534ep-30,
    -0x1.ec54170565912p-36, -0x1.ec54170565912p-35, -0x1.ec54170565912p-34, -0x1.ec54170565912p-33,
    -0x1.ec54170565912p-32, -0x1.ec54170565912p-31, 0x1.3abe8fa9a6eep-34, 0x1.3abe8fa9a6eep-33, 0x1.3abe8fa9a6eep-32,
    -0x1.8a82e0acb223fp-32, -0x1.8a82e0acb223fp-31, -0x1.8a82e0acb223fp-30, 0x1.d5f47d4d37703p-31,
    0x1.5f47d4d377037p-34, 0x1.5f47d4d377037p-33, 0x1.5f47d4d377037p-32, 0x1.5f47d4d377037p-31, 0x1.5f47d4d377037p-30,
    -0x1.4170565911f92p-30, 0x1.7d1f534ddc0dbp-30, -0x1.05c1596447e49p-30, 0x1.f47d4d377036ep-30,
    -0x1.70565911f924fp-34, -0x1.70565911f924fp-33, -0x1.70565911f924fp-32, -0x1.70565911f924fp-31,
    -0x1.70565911f924fp-30, 0x1.1f534ddc0db63p-30, 0x1.f534ddc0db629p-33, 0x1.f534ddc0db629p-32,
    -0x1.596447e493ad5p-36, -0x1.596447e493ad5p-35, -0x1.596447e493ad5p-34, -0x1.596447e493ad5p-33,
    -0x1.596447e493ad5p-32, -0x1.596447e493ad5p-31, -0x1.596447e493ad5p-30, -0x1.96447e493ad4dp-33,
    -0x1.96447e493ad4dp-32, -0x1.96447e493ad4dp-31, -0x1.96447e493ad4dp-30, 0x1.a6ee06db14acdp-31,
    -0x1.6447e493ad4cep-32, -0x1.6447e493ad4cep-31, -0x1.911f924eb5336p-32, -0x1.911f924eb5336p-31,
    -0x1.911f924eb5336p-30, 0x1.bb81b6c52b328p-31, 0x1.bb81b6c52b328p-30, -0x1.11f924eb53362p-31,
    -0x1.11f924eb53362p-30, 0x1.dc0db6295993cp-30, -0x1.f924eb53361dep-36, -0x1.f924eb53361dep-35,
    -0x1.f924eb53361dep-34, -0x1.f924eb53361dep-33, -0x1.f924eb53361dep-32, -0x1.f924eb53361dep-31,
    -0x1.f924eb53361dep-30, 0x1.b6c52b3278872p-35, 0x1.b6c52b3278872p-34, 0x1.b6c52b3278872p-33,
    -0x1.24eb53361de38p-34, -0x1.24eb53361de38p-33, -0x1.24eb53361de38p-32, -0x1.24eb53361de38p-31,
    -0x1.24eb53361de38p-30, 0x1.b6295993c439p-30, -0x1.275a99b0ef1bfp-31, -0x1.275a99b0ef1bfp-30,
};

}  // namespace detail
}  // namespace st
