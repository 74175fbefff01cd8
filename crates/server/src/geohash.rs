//! Places as numbers: the geohash of Redis, by which a sorted set holds places as scores.
//!
//! A *cell* of step `s` is one of 2^s parts of all latitudes and one of 2^s parts of all longitudes. Its number has the bits of both in turn,
//! the latitude's first bit lowest. A place has a cell of step [`STEP_MAX`]: 52 bits, which a score holds exactly.
//!
//! Latitudes reach from -85.05112878 to 85.05112878 degrees (Web Mercator). Distances are those on a sphere.

/// The step of a place's cell.
pub const STEP_MAX: u32 = 26;
/// The largest latitude in degrees.
pub const LATITUDE_MAX: f64 = 85.051_128_78;
/// The largest longitude in degrees.
pub const LONGITUDE_MAX: f64 = 180.0;
/// Radius of the earth in metres.
const EARTH: f64 = 6_372_797.560_856;
/// Half of the circumference in metres, as the projection has it.
const MERCATOR_MAX: f64 = 20_037_726.37;

/// A place in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// East is positive.
    pub longitude: f64,
    /// North is positive.
    pub latitude: f64,
}

/// A cell: its step, and its positions among the parts of latitudes and longitudes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    step: u32,
    latitude: u64,
    longitude: u64,
}

/// The bits of a number, with a 0 between each two of them.
fn spread(bits: u64) -> u64 {
    let steps = [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    steps.into_iter().fold(bits & 0xFFFF_FFFF, |bits, (by, mask)| (bits | bits << by) & mask)
}

/// Every second bit of a number.
fn gather(bits: u64) -> u64 {
    let steps = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFF),
    ];
    steps.into_iter().fold(bits & 0x5555_5555_5555_5555, |bits, (by, mask)| (bits | bits >> by) & mask)
}

impl Cell {
    fn of(place: Place, step: u32, latitude_max: f64) -> Self {
        let part = |value: f64, max: f64| {
            let share = (value + max) / (2.0 * max);
            (share * (1_u64 << step) as f64) as u64
        };
        Self {
            step,
            latitude: part(place.latitude, latitude_max),
            longitude: part(place.longitude, LONGITUDE_MAX),
        }
    }

    fn number(self) -> u64 {
        spread(self.latitude) | spread(self.longitude) << 1
    }

    /// The least and the greatest place.
    fn corners(self) -> (Place, Place) {
        let at = |part: u64, max: f64| part as f64 / (1_u64 << self.step) as f64 * (2.0 * max) - max;
        let corner = |by: u64| Place {
            longitude: at(self.longitude + by, LONGITUDE_MAX),
            latitude: at(self.latitude + by, LATITUDE_MAX),
        };
        (corner(0), corner(1))
    }

    /// The cell beside this one. A coordinate that changes wraps around.
    fn beside(self, north: i8, east: i8) -> Self {
        let moved = |part: u64, by: i8| match by {
            0 => part,
            by => part.wrapping_add_signed(by.into()) % (1 << self.step),
        };
        Self { latitude: moved(self.latitude, north), longitude: moved(self.longitude, east), ..self }
    }

    /// The numbers of the places in the cell: from, and before which.
    fn numbers(self) -> (u64, u64) {
        let shift = 2 * (STEP_MAX - self.step);
        (self.number() << shift, (self.number() + 1) << shift)
    }
}

impl Place {
    /// A place. `None` if it is out of range.
    #[must_use]
    pub fn new(longitude: f64, latitude: f64) -> Option<Self> {
        let is_inside = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
        is_inside.then_some(Self { longitude, latitude })
    }

    /// The number of its cell: the score of a member.
    #[must_use]
    pub fn number(self) -> u64 {
        Cell::of(self, STEP_MAX, LATITUDE_MAX).number()
    }

    /// The middle of the cell with this number, which may have any bits. A place at the greatest longitude or latitude has a cell behind the
    /// last one.
    #[must_use]
    pub fn of_number(number: u64) -> Self {
        let cell = Cell { step: STEP_MAX, latitude: gather(number), longitude: gather(number >> 1) };
        let (low, high) = cell.corners();
        Self {
            longitude: f64::midpoint(low.longitude, high.longitude).clamp(-LONGITUDE_MAX, LONGITUDE_MAX),
            latitude: f64::midpoint(low.latitude, high.latitude).clamp(-LATITUDE_MAX, LATITUDE_MAX),
        }
    }

    /// The geohash of eleven letters, as on geohash.org. The last letter is always `0`: a score has 52 bits.
    #[must_use]
    pub fn letters(self) -> String {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::of(self, STEP_MAX, 90.0).number();
        let letter = |at: u32| match 52_u32.checked_sub(5 * (at + 1)) {
            Some(shift) => char::from(ALPHABET[(bits >> shift) as usize % 32]),
            None => '0',
        };
        (0..11).map(letter).collect()
    }

    /// The distance to another place in metres.
    #[must_use]
    pub fn distance(self, other: Self) -> f64 {
        let (from, to) = (self.latitude.to_radians(), other.latitude.to_radians());
        let east = ((other.longitude.to_radians() - self.longitude.to_radians()) / 2.0).sin();
        if east == 0.0 {
            return self.distance_north(other);
        }
        let north = ((to - from) / 2.0).sin();
        2.0 * EARTH * (north * north + from.cos() * to.cos() * east * east).sqrt().asin()
    }

    /// The distance along a meridian in metres.
    fn distance_north(self, other: Self) -> f64 {
        EARTH * (other.latitude.to_radians() - self.latitude.to_radians()).abs()
    }
}

/// The shape of an area. Lengths are in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A circle of this radius.
    Circle(f64),
    /// A box of this width and height.
    Box(f64, f64),
}

/// An area around a place.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Its middle.
    pub middle: Place,
    /// Its shape.
    pub shape: Shape,
}

impl Area {
    /// The distance of a place from the middle, if the place is inside.
    #[must_use]
    pub fn distance(&self, place: Place) -> Option<f64> {
        let middle = self.middle;
        match self.shape {
            Shape::Circle(radius) => Some(middle.distance(place)).filter(|distance| *distance <= radius),
            Shape::Box(width, height) => {
                let is_inside = middle.distance_north(place) <= height / 2.0
                    && place.distance(Place { latitude: place.latitude, ..middle }) <= width / 2.0;
                is_inside.then(|| middle.distance(place))
            }
        }
    }

    /// Ranges of numbers (from, before) that contain all places of the area.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let (half_width, half_height, radius) = match self.shape {
            Shape::Circle(radius) => (radius, radius, radius),
            Shape::Box(width, height) => (width / 2.0, height / 2.0, (width / 2.0).hypot(height / 2.0)),
        };
        let Place { longitude, latitude } = self.middle;
        let north = (half_height / EARTH).to_degrees();
        let east_at = |latitude: f64| (half_width / EARTH / latitude.to_radians().cos()).to_degrees();
        // The parallel that is nearer to a pole is shorter.
        let east = east_at(if latitude < 0.0 { latitude - north } else { latitude + north });
        let low = Place { longitude: longitude - east, latitude: latitude - north };
        let high = Place { longitude: longitude + east, latitude: latitude + north };
        let step = step_of(radius, latitude);
        let mut cell = Cell::of(self.middle, step, LATITUDE_MAX);
        let is_covered = {
            let (south_west, _) = cell.beside(-1, -1).corners();
            let (_, north_east) = cell.beside(1, 1).corners();
            north_east.latitude >= high.latitude
                && south_west.latitude <= low.latitude
                && north_east.longitude >= high.longitude
                && south_west.longitude <= low.longitude
        };
        if step > 1 && !is_covered {
            cell = Cell::of(self.middle, step - 1, LATITUDE_MAX);
        }
        let (from, to) = cell.corners();
        let needs = |north: i8, east: i8| {
            let is_outside = north < 0 && from.latitude < low.latitude
                || north > 0 && to.latitude > high.latitude
                || east < 0 && from.longitude < low.longitude
                || east > 0 && to.longitude > high.longitude;
            cell.step < 2 || !is_outside
        };
        let around = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)];
        let mut ranges = Vec::new();
        for (north, east) in around.into_iter().filter(|(north, east)| needs(*north, *east)) {
            let range = cell.beside(north, east).numbers();
            // With few cells, those on two sides may be the same one.
            if !ranges.contains(&range) {
                ranges.push(range);
            }
        }
        ranges
    }
}

/// The step at which nine cells usually contain an area of this radius in metres.
fn step_of(radius: f64, latitude: f64) -> u32 {
    if radius == 0.0 {
        return STEP_MAX;
    }
    let (mut step, mut radius) = (1_i32, radius);
    while radius < MERCATOR_MAX {
        radius *= 2.0;
        step += 1;
    }
    // A cell of half the size would not be enough, and cells are narrow near the poles.
    step -= 2 + i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEP_MAX as i32).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn palermo_and_catania_are_where_redis_says() {
        let palermo = Place::new(13.361389, 38.115556).unwrap();
        let catania = Place::new(15.087269, 37.502669).unwrap();
        assert_eq!(palermo.number(), 3_479_099_956_230_698);
        assert_eq!(catania.number(), 3_479_447_370_796_909);
        let [from, to] = [palermo, catania].map(|place| Place::of_number(place.number()));
        assert_eq!(format!("{:.4}", from.distance(to)), "166274.1516");
        assert_eq!([from, to].map(Place::letters), ["sqc8b49rny0", "sqdtr74hyu0"]);
        assert_eq!(Place::new(181.0, 0.0), None);
        let corner = Place::new(LONGITUDE_MAX, LATITUDE_MAX).unwrap();
        assert_eq!(Place::of_number(corner.number()), corner);
        let around = Area { middle: corner, shape: Shape::Circle(1000.0) };
        assert!(around.ranges().iter().any(|(from, before)| (*from..*before).contains(&corner.number())));
    }

    #[test]
    fn the_ranges_of_an_area_contain_all_of_its_places() {
        let mut random = fastrand::Rng::with_seed(6);
        let mut inside = 0;
        for _ in 0..20_000 {
            let middle = Place {
                longitude: (random.f64() - 0.5) * 359.0,
                latitude: (random.f64() - 0.5) * 2.0 * 80.0,
            };
            let size = 10_f64.powf(random.f64() * 6.5);
            let shape =
                if random.bool() { Shape::Circle(size) } else { Shape::Box(size, size * random.f64()) };
            let area = Area { middle, shape };
            let ranges = area.ranges();
            // A place near the middle, mostly inside.
            let degrees = size / 100_000.0;
            let near = |of: f64, random: &mut fastrand::Rng| of + (random.f64() - 0.5) * 2.0 * degrees;
            let place = Place::new(near(middle.longitude, &mut random), near(middle.latitude, &mut random));
            let Some(place) = place.map(|place| Place::of_number(place.number())) else { continue };
            if area.distance(place).is_some() {
                inside += 1;
                let number = place.number();
                let is_found = ranges.iter().any(|(from, before)| (*from..*before).contains(&number));
                assert!(is_found, "{area:?} {place:?} {ranges:?}");
            }
        }
        assert!(inside > 2000, "{inside}");
    }
}
