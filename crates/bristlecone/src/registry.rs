//! SCAFFOLD: replaced when the trees land.
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, RwLock};
use crate::engine::*;
use crate::{Options, Result};
/// Engine of a new store.
pub const DEFAULT: &str = "wbtree";
/// Kinds with engines.
pub trait Open: Kind where Self::Value: ToOwned {
    /// Opens.
    fn open(path: &Path, options: &Options) -> Result<Arc<dyn Engine<Self>>>;
}
struct Mem<K: Kind>(RwLock<BTreeMap<K::KeyBuf, K::ValueBuf>>);
impl<K: Kind> Open for K where K::Value: ToOwned, K::ValueBuf: Sync, K::KeyBuf: Sync {
    fn open(_p: &Path, _o: &Options) -> Result<Arc<dyn Engine<K>>> { Ok(Arc::new(Mem::<K>(RwLock::default()))) }
}
struct Cur<'a, K: Kind>(&'a Mem<K>, Bound<K::KeyBuf>, bool);
impl<K: Kind> Cursor<K> for Cur<'_, K> {
    fn seek(&mut self, from: Bound<&K::Key>, d: bool) -> Result<()> { self.1 = from.map(K::own_key); self.2 = d; Ok(()) }
    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        let g = self.0.0.read().unwrap();
        let r = if self.2 { g.range((Bound::Unbounded, self.1.clone())).next_back() } else { g.range((self.1.clone(), Bound::Unbounded)).next() };
        let Some((k, v)) = r else { return Ok(false) };
        *key = k.clone(); *value = v.clone(); self.1 = Bound::Excluded(k.clone()); Ok(true)
    }
}
impl<K: Kind> Engine<K> for Mem<K> where K::Value: ToOwned, K::ValueBuf: Sync, K::KeyBuf: Sync {
    fn capabilities(&self) -> Capabilities { Capabilities { ordered: true, durable: false, snapshots: false, atomic_batch: false, several_writers: false } }
    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> { Ok(match self.0.read().unwrap().get(&K::own_key(key)) { Some(v) => { *value = v.clone(); true } None => false }) }
    fn contains(&self, key: &K::Key) -> Result<bool> { Ok(self.0.read().unwrap().contains_key(&K::own_key(key))) }
    fn put(&self, key: &K::Key, value: &K::Value) -> Result<bool> { Ok(self.0.write().unwrap().insert(K::own_key(key), K::own_value(value)).is_some()) }
    fn delete(&self, key: &K::Key) -> Result<bool> { Ok(self.0.write().unwrap().remove(&K::own_key(key)).is_some()) }
    fn update(&self, key: &K::Key, decide: &mut dyn FnMut(Option<&K::Value>) -> Change<'static, K::Value>) -> Result<()> {
        let mut g = self.0.write().unwrap(); let k = K::own_key(key);
        match decide(g.get(&k).map(K::value)) { Change::Keep => {}, Change::Delete => { g.remove(&k); } Change::Put(v) => { g.insert(k, K::own_value(v.as_ref())); } } Ok(())
    }
    fn cursor(&self) -> Box<dyn Cursor<K> + '_> { Box::new(Cur(self, Bound::Unbounded, false)) }
    fn len(&self) -> Count { Count { keys: self.0.read().unwrap().len() as u64, pending: false } }
    fn sync(&self) -> Result<()> { Ok(()) }
    fn check(&self) -> Result<CheckReport> { Ok(CheckReport::default()) }
    fn stats(&self) -> Stats { Stats { engine: "wbtree".into(), ..Stats::default() } }
    fn clear(&self) -> Result<()> { self.0.write().unwrap().clear(); Ok(()) }
    fn close(&self) -> Result<()> { Ok(()) }
}
