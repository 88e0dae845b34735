package algo

import "time"

// Window is how long a window is.
func (w FixedWindow) Window() time.Duration { return time.Duration(w.window.length) }

// Window is how long the sliding window is.
func (w SlidingWindow) Window() time.Duration { return time.Duration(w.window) }

// Window is how long the sliding window is.
func (w SlidingCounter) Window() time.Duration { return time.Duration(w.window.length) }
