import unittest, io
class T(unittest.TestCase):
    def setUp(self): self.x = [1]
    def test_ok(self): self.assertEqual(self.x, [1]); self.assertIn(1, self.x); self.assertAlmostEqual(0.1 + 0.2, 0.3)
    def test_raises(self):
        with self.assertRaisesRegex(ValueError, "inv"): int("invalid")
    def test_bad(self): self.assertTrue(False, "on purpose")
    @unittest.skip("later")
    def test_skip(self): pass
r = unittest.TextTestRunner(stream=io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromTestCase(T)); print(r.testsRun, len(r.failures), len(r.skipped), r.wasSuccessful())
