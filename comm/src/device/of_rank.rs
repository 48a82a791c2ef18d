//! The device of a rank: by words, and where a node has several alike, one for each of its ranks.

use super::select::{self, Numbered};
use super::{Device, cuda, hip, opencl};
use crate::error::{Error, Result};
use crate::names::did_you_mean;
use crate::shares::Share;
use crate::world::World;

impl Device {
    /// What devices are called in configurations.
    pub const KINDS: [&str; 4] = ["host", "opencl", "cuda", "hip"];

    /// The device that `select` means of the kind of that name: [`Device::opencl`], [`Device::cuda`] or [`Device::hip`], or
    /// the host, of which there is one.
    ///
    /// # Errors
    /// As those; [`Error::DeviceUnavailable`] if there is no such kind.
    pub fn open(kind: &str, select: &str) -> Result<Self> {
        match kind {
            "host" => Ok(Self::host()),
            "opencl" => Self::opencl(select),
            "cuda" => Self::cuda(select),
            "hip" => Self::hip(select),
            _ => Err(no_such(kind)),
        }
    }

    /// That there is such a device, without starting it.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn check(kind: &str, select: &str) -> Result<()> {
        alike(kind, select).map(|_| ())
    }

    /// As [`Device::open`], the one that is this rank's: of several that `select` means, can be used and are of the same
    /// model each rank takes the first that the fewest ranks before it on its node have. With as many GPUs as ranks each
    /// has its own; with fewer they are shared in turn. What a process does not see (`CUDA_VISIBLE_DEVICES`) it does not
    /// take, and by that alone nobody else's memory is reached: give all ranks of a node all of its GPUs. No other device
    /// is started. Collective; blocks.
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::{Error, World, WorldOptions};
    ///
    /// # fn main() -> Result<(), Error> {
    /// let names = World::threads(2, WorldOptions::default(), |world| {
    ///     let device = Device::of_rank(&world, "host", "")?; // or "cuda"
    ///     Ok::<_, Error>(device.name().to_owned())
    /// })?;
    /// assert_eq!(names, [Ok("host".into()), Ok("host".into())]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`] with the first rank that has none, and why, the same on every rank; else as
    /// [`World::barrier`].
    pub fn of_rank(world: &World, kind: &str, select: &str) -> Result<Self> {
        const CALL: &str = "Device::of_rank";
        let alike = alike(kind, select);
        let addresses = |alike: &Vec<Numbered>| alike.iter().map(|(_, address)| address.clone()).collect();
        let all = world.agree(CALL, alike.as_ref().map(addresses).map(Share::<String>::new))?;
        let opened = alike.and_then(|alike| match Share::of_rank(world.rank(), &all) {
            None => Self::open(kind, select),
            Some(taken) => {
                let one = Self::open(kind, &alike[taken].0.to_string())?;
                let shared_out = if alike.len() > 1 { addresses(&alike) } else { Vec::new() };
                Ok(Self { shared_out: shared_out.into(), ..one })
            }
        });
        world.agree(CALL, opened.as_ref().map(|_| ()))?;
        opened
    }
}

/// What a rank may take of that kind; nothing of the host, which all share.
fn alike(kind: &str, select: &str) -> Result<Vec<Numbered>> {
    let asked = if select.is_empty() { kind.to_owned() } else { format!("{kind}:{select}") };
    match kind {
        "host" => Ok(Vec::new()),
        "opencl" => select::alike(&asked, select, &opencl::found()?),
        "cuda" => select::alike(&asked, select, &cuda::found()?),
        "hip" => select::alike(&asked, select, &hip::found()?),
        _ => Err(no_such(kind)),
    }
}

fn no_such(kind: &str) -> Error {
    let near = did_you_mean(kind, Device::KINDS.into_iter());
    let reason = format!("there is no such kind of device; there are {}{near}", Device::KINDS.join(", "));
    Error::DeviceUnavailable { device: kind.into(), reason }
}
