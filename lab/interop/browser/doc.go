// Package browser tests the dashboard of weir serve in a real browser: Chromium, which chromedp drives. All tests share one.
package browser
