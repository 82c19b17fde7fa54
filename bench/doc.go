// Package bench measures onlyonce. Absolute times depend on the machine; compare
// ratios within one run.
package bench
