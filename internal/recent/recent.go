// Package recent is a bounded cache that keeps what is in use.
//
// A cache has two generations. When the young one is full it becomes the old
// one, and what was old and unused is forgotten. An entry that is read in the
// old generation moves to the young one.
package recent

import "sync"

// A Cache maps keys to values. It is safe for concurrent use. Max must be set.
type Cache[K comparable, V any] struct {
	Max    int         // the weight of a generation
	Weight func(V) int // nil: each value weighs 1

	mu         sync.Mutex
	young, old map[K]V
	weight     int // of young
}

// Get returns the value of k, if the cache still has it.
func (c *Cache[K, V]) Get(k K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.young[k]; ok {
		return v, true
	}
	v, ok := c.old[k]
	if ok {
		c.put(k, v)
	}
	return v, ok
}

// Put sets the value of k.
func (c *Cache[K, V]) Put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(k, v)
}

// put adds to the young generation. c.mu is held.
func (c *Cache[K, V]) put(k K, v V) {
	w := 1
	if c.Weight != nil {
		w = c.Weight(v)
	}
	if c.young == nil || c.weight+w > c.Max {
		c.old, c.young, c.weight = c.young, make(map[K]V), 0
	}
	c.young[k] = v
	c.weight += w
}
