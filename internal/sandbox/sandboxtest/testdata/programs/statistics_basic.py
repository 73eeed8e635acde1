import statistics as s
d = [2, 4, 4, 4, 5, 5, 7, 9]
print(s.mean(d), s.median(d), s.mode(d), s.pstdev(d), round(s.stdev(d), 6), s.variance(d), s.quantiles(d, n=4), s.multimode("aabbc"))
print(s.fmean([1.5, 2.5]), round(s.geometric_mean([54, 24, 36]), 1), s.harmonic_mean([40, 60]), s.median_low([1, 3, 5, 7]))
print(s.NormalDist(100, 15).cdf(100), round(s.correlation([1, 2, 3], [1, 2, 4]), 4), s.linear_regression([1, 2, 3], [2, 4, 6]))
try: s.mean([])
except s.StatisticsError as e: print(e)
