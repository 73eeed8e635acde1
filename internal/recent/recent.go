// Package recent is a bounded cache that keeps the entries in use.
//
// A cache has two generations. When the young generation is full, it becomes the old
// one, and the cache drops the old one before it. Reading an entry of the old
// generation copies the entry to the young one, so entries in use survive.
package recent

import "sync"

// A Cache maps keys to values. It is safe for concurrent use. Max must be set.
type Cache[K comparable, V any] struct {
	Max    int         // largest weight of a generation
	Weight func(V) int // weight of a value; nil: 1

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
	// The entry is in use, so it must survive the next change of generations.
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

// put adds an entry to the young generation. c.mu is held.
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
