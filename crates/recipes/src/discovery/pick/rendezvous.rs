//! Rendezvous hashing with weights: which of several members owns a key.
//!
//! Every member gets a draw for every key, and the best draw owns the key. So when a member leaves, only its own
//! keys move, and when one enters, keys move only to it. Heavier members draw better: the draw is the time of an
//! exponential distribution whose rate is the weight, and the earliest time wins (each of several such times is the
//! first with a probability proportional to its rate).
//!
//! This is a protocol, in integers only: programs in other languages, and of other versions, must compute the same
//! owner. `docs/rendezvous.md` describes it, and has the test vectors that the tests here use.

/// The constants of FNV-1a for 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The increment of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number of fractional bits of a logarithm.
const FRACTION_BITS: u32 = 32;

/// The digest of a key, or of a member's id.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
    mix(bytes.iter().fold(FNV_OFFSET, fold))
}

/// The draw of a member for a key: larger is better, among members of equal weight.
pub(crate) fn draw(key: u64, member: u64) -> u64 {
    mix((key ^ member).wrapping_add(STEP))
}

/// The output function of SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Whether the first of two draws beats the second, each with the weight of its member, which is not 0.
///
/// Equal draws are decided by the ids of the members: the smaller one, compared as bytes, wins.
pub(crate) fn beats((draw, weight): (u64, u32), (other, other_weight): (u64, u32)) -> bool {
    if weight == other_weight {
        return draw > other;
    }
    let time = u128::from(time(draw)) * u128::from(other_weight);
    let other_time = u128::from(self::time(other)) * u128::from(weight);
    time < other_time || (time == other_time && draw > other)
}

/// Minus the logarithm, to the base of 2, of a draw as a fraction of 2^64: from 1 to 2^38, with
/// [`FRACTION_BITS`] bits after the point. It never grows as the draw grows.
fn time(draw: u64) -> u64 {
    let draw = draw | 1;
    let zeros = draw.leading_zeros();
    let whole = u64::from(63 - zeros);

    // The bits below the highest one: the first eight of them select a segment of the curve, and the next 32 the
    // position in it.
    let below = draw << zeros << 1;
    let piece = (below >> 56) as usize;
    let along = (below << 8) >> 32;
    let (from, to) = (LOGARITHMS[piece], LOGARITHMS[piece + 1]);
    let part = from + (((to - from) * along) >> FRACTION_BITS);

    (64 << FRACTION_BITS) - ((whole << FRACTION_BITS) + part)
}

/// The logarithms, to the base of 2, of 1 + i/256, rounded to [`FRACTION_BITS`] bits after the point.
static LOGARITHMS: [u64; 257] = logarithms();

const fn logarithms() -> [u64; 257] {
    let mut table = [0; 257];
    let mut i = 0;
    while i < 256 {
        table[i] = logarithm(256 + i as u128);
        i += 1;
    }
    table[256] = 1 << FRACTION_BITS;
    table
}

/// The logarithm of `number` / 256, for numbers from 256 to 511. Each squaring of a number between 1 and 2 doubles
/// its logarithm, and so yields one more bit of it.
const fn logarithm(number: u128) -> u64 {
    const POINT: u32 = 62;
    const EXTRA: u32 = 8;

    let mut square = number << (POINT - 8);
    let mut bits: u64 = 0;
    let mut left = FRACTION_BITS + EXTRA;
    while left > 0 {
        square = (square * square) >> POINT;
        bits <<= 1;
        if square >= 2 << POINT {
            square >>= 1;
            bits |= 1;
        }
        left -= 1;
    }
    (bits + (1 << (EXTRA - 1))) >> EXTRA
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of `docs/rendezvous.md`, from an independent implementation.
    #[test]
    fn agrees_with_the_description() {
        assert_eq!(digest(b""), 0xf52a_15e9_a9b5_e89b);
        assert_eq!(digest(b"a"), 0x02c0_bdbf_4814_20f8);
        assert_eq!(digest(b"user-7"), 0x9e12_4c98_a398_664e);
        assert_eq!(digest("é".as_bytes()), 0x2334_0361_7480_019e);
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(digest(&bytes), 0xef26_87f0_d437_1fe2);
        assert_eq!(draw(digest(b"user-7"), digest(b"web-1")), 0x805a_e7aa_cf30_1d89);

        assert_eq!(time(0), 64 << 32);
        assert_eq!(time(1), 64 << 32);
        assert_eq!(time(2), 268_070_544_838);
        assert_eq!(time(1 << 63), 1 << 32);
        assert_eq!(time(0x1234_5678_9abc_def0), 16_380_072_700);
        assert_eq!(time(0xfedc_ba98_7654_3210), 27_602_998);
        assert_eq!(time(u64::MAX), 1);
    }

    #[test]
    fn the_table_has_the_logarithms() {
        assert_eq!(LOGARITHMS.iter().sum::<u64>(), 614_909_757_894);
        for (i, entry) in LOGARITHMS.iter().enumerate() {
            let exact = (1.0 + i as f64 / 256.0).log2() * (1_u64 << FRACTION_BITS) as f64;
            assert_eq!(*entry, exact.round() as u64, "{i}");
        }
    }

    fn owner(key: &str, members: &[(&'static str, u32)]) -> &'static str {
        let key = digest(key.as_bytes());
        let draws = members.iter().filter(|(_, weight)| *weight > 0).map(|(id, weight)| {
            let draw = draw(key, digest(id.as_bytes()));
            (*id, (draw, *weight))
        });
        draws.reduce(|best, next| if beats(next.1, best.1) { next } else { best }).unwrap().0
    }

    #[test]
    fn owners_are_those_of_the_description() {
        let keys: Vec<_> = (1..=10).map(|n| format!("user-{n}")).collect();
        let owners = |members: &[(&'static str, u32)]| -> String {
            let owners = keys.iter().map(|key| owner(key, members).trim_start_matches("web-"));
            owners.collect()
        };

        let even = [("web-1", 1), ("web-2", 1), ("web-3", 1), ("web-4", 1), ("web-5", 1)];
        assert_eq!(owners(&even), "2553332452");
        let uneven = [("web-1", 1), ("web-2", 2), ("web-3", 3), ("web-4", 0), ("web-5", 4)];
        assert_eq!(owners(&uneven), "3555332552");
    }

    proptest::proptest! {
        /// Equal weights are a shortcut, and not another rule.
        #[test]
        fn equal_weights_are_no_special_case(a: u64, b: u64, weight in 1_u32..) {
            let (early, late) = (time(a), time(b));
            let by_time = early < late || (early == late && a > b);
            proptest::prop_assert_eq!(beats((a, weight), (b, weight)), by_time);
        }
    }
}
