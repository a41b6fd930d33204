//! Money without rounding: sums of prices times seconds are whole numbers of one small unit.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

use crate::model::FieldError;

/// Seconds of an hour.
const HOUR: i128 = 3600;
/// Hours of a month, as AWS prices one.
const MONTH: i128 = 730;
/// Units of a nano-dollar: a price by the hour or by the month, times a whole number of seconds, is whole in them.
const PER_NANO: i128 = HOUR * MONTH;
/// Nano-dollars of a dollar.
const NANOS: i128 = 1_000_000_000;

/// A price in US dollars, exact to nine decimals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(u64);

impl Price {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Returns the price in nano-dollars.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Creates a price of this many nano-dollars.
    pub const fn of_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Parses a decimal such as `0.1008`, in dollars.
    ///
    /// # Errors
    /// The text is not such a decimal, has more than nine decimals, or is over a million dollars.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let refused = |message: &str| {
            let fix = "write dollars as a decimal with at most 9 decimals, such as 0.1008";
            FieldError::new("price", text, message, fix)
        };
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) {
            return Err(refused("is not a decimal"));
        }
        if part.len() > 9 {
            return Err(refused("has more than 9 decimals"));
        }
        if whole.len() > 6 {
            return Err(refused("is over 1000000 dollars"));
        }
        let number = |text: &str| text.parse::<u64>().expect("a few digits are a number");
        let scale = 10u64.pow(9 - part.len() as u32);
        Ok(Self(number(whole) * 1_000_000_000 + number(part) * scale))
    }

    /// Multiplies the price by a ratio, rounded to the nano-dollar.
    pub(super) const fn scaled(self, by: u64, of: u64) -> Self {
        Self((self.0 * by + of / 2) / of)
    }
}

/// An exact amount of US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(i128);

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Returns the amount for this many seconds at a price by the hour.
    pub fn hourly(price: Price, seconds: u64) -> Self {
        Self(i128::from(price.0) * MONTH * i128::from(seconds))
    }

    /// Returns the amount for this many seconds at a price by the month of 730 hours.
    pub fn monthly(price: Price, seconds: u64) -> Self {
        Self(i128::from(price.0) * i128::from(seconds))
    }

    /// Creates an amount of this many nano-dollars.
    pub const fn of_nanos(nanos: i128) -> Self {
        Self(nanos * PER_NANO)
    }

    /// Returns the amount in nano-dollars, rounded to the nearest.
    pub const fn nanos(self) -> i128 {
        let half = if self.0 < 0 { -PER_NANO / 2 } else { PER_NANO / 2 };
        (self.0 + half) / PER_NANO
    }

    /// Returns whether the amount is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the amount in dollars, for a measurement; not exact.
    pub fn dollars(self) -> f64 {
        self.nanos() as f64 / NANOS as f64
    }

    /// Formats the amount with this many decimals, at most nine.
    pub fn decimal(self, decimals: u32) -> String {
        let scale = 10i128.pow(9 - decimals.min(9));
        let nanos = self.nanos();
        let half = if nanos < 0 { -scale / 2 } else { scale / 2 };
        let rounded = (nanos + half) / scale;
        let of = 10i128.pow(decimals.min(9));
        let sign = if rounded < 0 { "-" } else { "" };
        let (whole, part) = ((rounded / of).abs(), (rounded % of).abs());
        match decimals.min(9) {
            0 => format!("{sign}{whole}"),
            width => format!("{sign}{whole}.{part:0width$}", width = width as usize),
        }
    }

    /// Divides the amount by weights, so that the sum of the parts is the whole: the remainder goes, unit by unit, to
    /// the parts that lost most by rounding, the first of equals first. All parts are zero where all weights are.
    pub(super) fn divide(self, weights: &[u64]) -> Vec<Self> {
        let all: i128 = weights.iter().copied().map(i128::from).sum();
        if all == 0 {
            return vec![Self::ZERO; weights.len()];
        }
        // Quotient and remainder are computed separately: the amount times a weight could overflow.
        let (each, rest) = (self.0.div_euclid(all), self.0.rem_euclid(all));
        let part = |weight: u64| {
            let weight = i128::from(weight);
            (each * weight + rest * weight / all, rest * weight % all)
        };
        let mut parts: Vec<(i128, i128)> = weights.iter().map(|weight| part(*weight)).collect();
        let lost = self.0 - parts.iter().map(|(part, _)| part).sum::<i128>();
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(parts[*at].1));
        for at in order.into_iter().take(usize::try_from(lost).unwrap_or_default()) {
            parts[at].0 += 1;
        }
        parts.into_iter().map(|(part, _)| Self(part)).collect()
    }
}

/// Dollars and cents; with four decimals below a dime, where cents are too coarse.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = self.nanos().unsigned_abs() < 100_000_000 && !self.is_zero();
        let text = self.decimal(if small { 4 } else { 2 });
        let text = text.strip_prefix('-').map_or_else(|| format!("${text}"), |text| format!("-${text}"));
        f.pad(&text)
    }
}

impl Add for Money {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Money {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_exact_and_what_is_none_is_refused() {
        for (text, nanos) in [("0.1008", 100_800_000), ("0.05132", 51_320_000), ("3", 3_000_000_000)] {
            assert_eq!(Price::parse(text).unwrap().nanos(), nanos, "{text}");
        }
        for bad in ["", ".", "1.", ".5", "-1", "1e3", "0.1234567891", "1000000000", "0,1", "$1", "NaN"] {
            let problem = Price::parse(bad).unwrap_err();
            assert_eq!((problem.value.as_str(), problem.fix.contains("0.1008")), (bad, true));
        }
    }

    #[test]
    fn an_hour_of_seconds_is_the_price_and_so_is_a_month() {
        let price = Price::parse("0.1008").unwrap();
        let seconds: Money = (0..3600).map(|_| Money::hourly(price, 1)).sum();
        assert_eq!(seconds, Money::of_nanos(100_800_000));
        assert_eq!(Money::monthly(price, 730 * 3600), Money::of_nanos(100_800_000));
    }

    #[test]
    fn amounts_are_shown_rounded_and_with_their_sign() {
        let shown = |nanos: i128| Money::of_nanos(nanos).to_string();
        let all = [0, 4_200_000, 420_000_000, 1_005_000_000, -420_000_000].map(shown);
        assert_eq!(all, ["$0.00", "$0.0042", "$0.42", "$1.01", "-$0.42"]);
        assert_eq!(Money::of_nanos(-5_000_000).decimal(9), "-0.005000000");
        assert_eq!(Money::of_nanos(1_500_000_000).decimal(0), "2");
    }

    #[test]
    fn what_is_divided_is_whole_again() {
        for (amount, weights) in
            [(7i128, vec![1, 1, 1]), (-7, vec![3, 0, 2]), (i128::from(u64::MAX), vec![u64::MAX / 8, 1, 5])]
        {
            let parts = Money(amount).divide(&weights);
            assert_eq!(parts.iter().copied().sum::<Money>(), Money(amount), "{weights:?}");
        }
        assert_eq!(Money(7).divide(&[1, 1, 1]), [Money(3), Money(2), Money(2)]);
        assert_eq!(Money(7).divide(&[0, 0]), [Money::ZERO; 2]);
    }
}
